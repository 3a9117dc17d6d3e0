"""Numbers of LoRA and of other adapters that PEFT refuses."""

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.conditions import one_of_two
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.facts.lora import ALL_LINEAR, Lora, is_true, last, lora_keys, loras
from tunec.compiler.lints.facts.model import NoRegex, adapted
from tunec.compiler.lints.facts.training_loop import is_number, is_whole, real
from tunec.compiler.lints.rule import Consequence, Finding, rule

_NEEDED: Final = ("r", "lora_alpha", "lora_dropout")
"""Keys that PEFT calculates with, so that null raises a TypeError."""
_PATTERNS: Final = ("rank_pattern", "alpha_pattern")
_PLAIN: Final = ("peft", "glm4")
"""Kinds of documents whose values are passed to PEFT unchanged."""
_OF_EVA: Final = (("rho", 1.0, None), ("tau", 0.0, 1.0))


@rule(
    "error",
    "init",
    consumers=("peft",),
    reads=lora_keys(*_NEEDED, *_PATTERNS, "layer_replication", "eva_config", "loftq_config"),
)
def adapter_number_refused(run: LintContext) -> Iterator[Finding]:
    """A number of adapter_config.json that PEFT accepts on reading and fails on later."""
    for lora in loras(run):
        if lora.document.kind not in _PLAIN:
            continue
        yield from _of_layers(lora)
        for name in _PATTERNS:
            yield from _of_pattern(lora, name)
        yield from _of_replication(lora)
        yield from _of_eva(lora)
        yield from _of_loftq(lora)


def _of_layers(lora: Lora) -> Iterator[Finding]:
    for name in _NEEDED:
        at = lora.document.get(lora.key(name))
        if at is not None and at.value is None:
            yield Finding(
                f"{name} is null",
                (at.label("refused"),),
                ("PEFT uses the default only if the key is absent",),
                "remove it, or write a number",
                Fix((at.removed(),), "safe"),
            )
    rank = lora.place("r")
    if rank is not None and isinstance(rank.value, float):
        yield _not_whole(rank, "the rank")


def _of_pattern(lora: Lora, name: str) -> Iterator[Finding]:
    pattern = lora.place(name)
    if pattern is None or not isinstance(pattern.value, dict):
        return
    prefix = f"{lora.key(name)}."
    for path, at in lora.document.found.items():
        if not path.startswith(prefix) or is_whole(at.value):
            continue
        if name == "rank_pattern" and isinstance(at.value, float):
            yield _not_whole(at, "a rank")
        elif not is_number(at.value):
            yield Finding(
                f"{name} holds {at.value!r}, which is no number",
                (at.label("refused"),),
                ("what a pattern says is used as it is",),
                "write a number",
            )


def _of_replication(lora: Lora) -> Iterator[Finding]:
    at = lora.place("layer_replication")
    if at is None or not isinstance(at.value, list) or not at.value:
        return
    if not all(isinstance(each, list) and len(each) == 2 for each in at.value):
        yield Finding(
            "layer_replication is no list of pairs",
            (at.label("refused"),),
            ("each item says where a run of layers begins and where it ends",),
            f"write [{at.value}]" if all(map(is_whole, at.value)) else "write [[0, 16], [8, 24]]",
        )


def _of_eva(lora: Lora) -> Iterator[Finding]:
    for name, least, most in _OF_EVA:
        at = lora.document.get(f"{lora.key('eva_config')}.{name}")
        if at is None or not is_number(at.value):
            continue
        if at.value < least or (most is not None and at.value > most):
            words = f"from {least:g} to {most:g}" if most is not None else f"{least:g} or more"
            yield _out_of(at, words, "parse")


def _of_loftq(lora: Lora) -> Iterator[Finding]:
    at = lora.document.get(f"{lora.key('loftq_config')}.loftq_bits")
    if at is None or lora.value("init_lora_weights") != "loftq" or not is_number(at.value):
        return
    if at.value not in (2, 4, 8):
        yield _out_of(at, "4 or 8", "init")


def _out_of(at: Place, words: str, when: Consequence) -> Finding:
    name = at.path.rpartition(".")[2]
    return Finding(
        f"{name} is {at.value}, and has to be {words}",
        (at.label("refused"),),
        (),
        f"write {words}",
        consequence=when,
    )


def _not_whole(at: Place, what: str) -> Finding:
    number: Any = at.value
    meant = round(number) if isfinite(number) else 16
    return Finding(
        f"{what} is {number}, and has to be a whole number",
        (at.label("refused"),),
        ("it is the size of a matrix: a tuple of ints, but found element of type float",),
        f"write {meant}",
        Fix((at.replaced(meant),), "safe") if meant == number else None,
    )


@rule("error", "silent", consumers=("peft",), reads=lora_keys("lora_alpha"))
def lora_alpha_of_zero(run: LintContext) -> Iterator[Finding]:
    """LoRA's alpha is zero or negative."""
    for lora in loras(run):
        at = lora.place("lora_alpha")
        alpha = None if at is None else real(at.value)
        if at is None or alpha is None or alpha > 0:
            continue
        if lora.document.kind == "llamafactory" and alpha == 0:
            continue  # `lora_alpha or lora_rank * 2`
        what = "nothing is trained" if alpha == 0 else "adapters push the wrong way at first"
        yield Finding(
            f"lora_alpha is {at.value}: {what}",
            (at.label("scales every adapter"),),
            ("an adapter adds alpha / r times its product, and its gradient has the same factor",),
            "write the rank, or twice the rank",
            severity=None if alpha == 0 else "warning",
        )


@rule("error", "init", consumers=("peft",), reads=lora_keys("lora_dropout"))
def lora_dropout_out_of_range(run: LintContext) -> Iterator[Finding]:
    """LoRA's dropout is not a probability, or drops everything."""
    for lora in loras(run):
        at = lora.place("lora_dropout")
        share = None if at is None else real(at.value)
        if at is None or share is None or 0 <= share < 1:
            continue
        if share < 0:
            message, consequence = f"lora_dropout is {at.value}, and drops nothing", "silent"
        elif share == 1:
            message, consequence = "lora_dropout drops every input: nothing is trained", "silent"
        else:
            message, consequence = f"lora_dropout is {at.value}, and no probability", "init"
        percent = share / 100
        yield Finding(
            message,
            (at.label("a share from 0 to 1"),),
            (),
            f"write {percent:g}" if share > 1 else "write 0.05 or 0",
            Fix((at.replaced(percent),), "unsafe") if share > 1 else None,
            consequence="init" if consequence == "init" else "silent",
            severity="warning" if share < 0 else None,
        )


@rule("error", "init", consumers=("peft",), reads=lora_keys("r", "rank_pattern"))
def lora_rank_not_positive(run: LintContext) -> Iterator[Finding]:
    """LoRA's rank is zero or less."""
    for lora in loras(run):
        for at in _ranks(lora):
            rank = real(at.value)
            if rank is not None and rank < 1:
                yield Finding(
                    f"LoRA's rank is {at.value}",
                    (at.label("has to be 1 or more"),),
                    ("PEFT refuses a rank below 1",),
                    "write 8 or 16",
                    severity=None if _is_written_there(at) else "note",
                )


def _is_written_there(at: Place) -> bool:
    """Whether the number is written in the call: defaults of 0 elsewhere often mean no adapter."""
    if at.document.format != "python":
        return True
    lines = at.document.text.splitlines()
    line = lines[at.span.line - 1] if at.span.line <= len(lines) else ""
    return re.search(r"\br\s*=\s*-?\d", line) is not None


def _ranks(lora: Lora) -> Iterator[Place]:
    if (at := lora.place("r")) is not None:
        yield at
    pattern = lora.place("rank_pattern")
    if pattern is not None and isinstance(pattern.value, dict):
        for path, place in lora.document.found.items():
            if path.startswith(f"{lora.key('rank_pattern')}."):
                yield place


@rule("error", "parse", consumers=("peft>=0.14",), reads=lora_keys("lora_bias"))
def lora_bias_rejected(run: LintContext) -> Iterator[Finding]:
    """`lora_bias` is set beside what does not allow bias terms, or on layers without one."""
    for lora in loras(run):
        at = lora.place("lora_bias")
        if lora.document.kind not in ("peft", "glm4") or at is None or at.value is not True:
            continue
        dora, init = lora.place("use_dora"), lora.place("init_lora_weights")
        if dora is not None and is_true(dora.value):
            other, what = dora, "use_dora"
        elif init is not None and not isinstance(init.value, bool):
            other, what = init, f"init_lora_weights {init.value}"
        else:
            yield from _never_merged(run, lora, at)
            continue
        yield Finding(
            f"lora_bias cannot stand beside {what}",
            (at.label("refused"), other.label("", primary=False)),
            ("PEFT refuses the pair while it reads the configuration",),
            "remove one of the two",
        )


def _never_merged(run: LintContext, lora: Lora, at: Place) -> Iterator[Finding]:
    """The adapter's bias has no bias of the base to be added to."""
    targets = lora.targets
    if run.model is None or targets is None:
        return
    try:
        mine = adapted(run.model.architecture, targets, lora.excluded)
    except NoRegex:
        return
    bare = {last(each.path) for each in mine if each.kind == "linear" and not each.bias}
    if not bare:
        return
    is_merged = _MERGES.search(lora.document.text) is not None
    yield Finding(
        f"an adapter with lora_bias cannot be merged: {run.model.path} has no bias in "
        f"{quoted(sorted(bare), 'and')}",
        (at.label("merging raises a RuntimeError"),),
        ("to merge, PEFT adds the bias of the adapter to the bias of the layer",),
        "remove lora_bias, or keep the adapter apart from its base",
        severity=None if is_merged else "note",
        consequence="save",
    )


_MERGES: Final = re.compile(r"\.merge_(?:and_unload|adapter)\(")
"""What merges in a script: peft 0.14.0 to 0.21.2 tuners/lora/layer.py `Linear.merge`, which says
why since 0.18."""
_OF_LAYERS: Final = ("lora_dropout", "use_dora", "lora_bias", "fan_in_fan_out")
_EMBEDDINGS: Final = ("embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings")


@rule(
    "error",
    "init",
    consumers=("peft",),
    reads=lora_keys(
        "target_parameters", "trainable_token_indices", "target_modules", "megatron_config"
    ),
)
def lora_pair_refused(run: LintContext) -> Iterator[Finding]:
    """Two LoRA settings that PEFT refuses together, or a setting that leaves nothing to adapt."""
    for lora in loras(run):
        yield from _parameters(lora)
        yield from _tokens(lora)
        yield from _saved(run, lora)
        yield from _nothing_left(lora)
        megatron, dora = lora.place("megatron_config"), lora.place("use_dora")
        if dora is not None and is_true(dora.value) and megatron is not None and megatron.value:
            yield one_of_two(dora, megatron, "DoRA has no form for Megatron's layers")


def _parameters(lora: Lora) -> Iterator[Finding]:
    """Report settings of layers beside `target_parameters`, whose adapters have no layer."""
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


def _saved(run: LintContext, lora: Lora) -> Iterator[Finding]:
    """Report a mapping of tokens that names saved modules.

    A list of tokens belongs to the embedding's full name, which modules_to_save never contains.
    """
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
