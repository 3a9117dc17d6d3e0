"""Two settings of LoRA that PEFT refuses together, or one that leaves nothing to adapt."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.adapter.lora import ALL_LINEAR, Lora, is_true, last, loras
from tunec.compiler.lints.conditions import one_of_two
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OF_LAYERS: Final = ("lora_dropout", "use_dora", "lora_bias", "fan_in_fan_out")
_EMBEDDINGS: Final = ("embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings")


def _check(run: Run) -> Iterator[Finding]:
    for lora in loras(run):
        yield from _parameters(lora)
        yield from _tokens(lora)
        yield from _saved(run, lora)
        yield from _nothing_left(lora)
        megatron, dora = lora.place("megatron_config"), lora.place("use_dora")
        if dora is not None and is_true(dora.value) and megatron is not None and megatron.value:
            yield one_of_two(dora, megatron, "DoRA has no form for Megatron's layers")


def _parameters(lora: Lora) -> Iterator[Finding]:
    """Adapters of parameters have no layer of their own."""
    parameters = lora.place("target_parameters")
    if parameters is None or not parameters.value:
        return
    if isinstance(parameters.value, str):
        yield Finding(
            "target_parameters is a text, not a list",
            (parameters.label("refused"),),
            (),
            f"write [{parameters.value}]",
        )
        return
    for name in _OF_LAYERS:
        at = lora.place(name)
        if at is not None and at.value not in (False, 0, "false"):
            yield one_of_two(at, parameters, "an adapter of a parameter has no layer to hold it")


def _tokens(lora: Lora) -> Iterator[Finding]:
    tokens, targets = lora.place("trainable_token_indices"), lora.place("target_modules")
    named = lora.targets
    if tokens is None or not tokens.value or targets is None or not isinstance(named, tuple):
        return
    layers = set(tokens.value) if isinstance(tokens.value, dict) else set(_EMBEDDINGS)
    if {last(each) for each in named} & {last(str(each)) for each in layers}:
        yield one_of_two(tokens, targets, "the embedding has an adapter already")


def _saved(run: Run, lora: Lora) -> Iterator[Finding]:
    """A list of tokens is of the embedding's full name, which modules_to_save never is."""
    tokens, saved = lora.place("trainable_token_indices"), lora.place("modules_to_save")
    if tokens is None or saved is None or not isinstance(tokens.value, dict):
        return
    if set(tokens.value) & set(lora.saved) and run.runs("peft>=0.15") is not False:
        yield one_of_two(tokens, saved, "the embedding is already marked to be trained fully")


def _nothing_left(lora: Lora) -> Iterator[Finding]:
    targets, excluded = lora.place("target_modules"), lora.place("exclude_modules")
    named = lora.targets
    if lora.value("target_parameters") or targets is None:
        return
    if targets.value == [] and lora.document.kind == "peft":
        yield Finding(
            "target_modules is empty",
            (targets.label("adapts nothing"),),
            ("without the key PEFT takes the usual layers of a known architecture",),
            "write the names of layers, or all-linear",
        )
    if excluded is None or not isinstance(named, tuple) or named == (ALL_LINEAR,):
        return
    if named and {last(each) for each in named} <= set(lora.excluded):
        yield Finding(
            "exclude_modules takes out every target",
            (excluded.label("nothing is left"), targets.label("", primary=False)),
            (),
            "remove one of the two names",
        )


RULE = Rule(
    name="lora-pair-refused",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.17.1 to 0.21.2 tuners/lora/layer.py `ParamWrapper.__init__`: does not work "
            "with lora_dropout != 0, fan_in_fan_out, lora_bias, use_dora; tuners/lora/config.py "
            "`__post_init__`: must be a list of strings; DoRA does not support megatron_core"
        ),
        (
            "peft 0.21.2, run: All modules were excluded; No `target_modules` passed; "
            "trainable_token_indices cannot be applied to modules of type lora.layer.Embedding; "
            "0.15.0 to 0.21.2: The embedding layer is already marked to be trained fully"
        ),
        "huggingface/peft#2653",
    ),
    check=_check,
)
