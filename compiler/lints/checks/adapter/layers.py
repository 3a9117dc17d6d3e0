"""Layers that LoRA is limited to by number or by pattern, and how its weights are initialised."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.lora import Lora, adapters, is_plain, last, lora_keys, loras
from tunec.compiler.lints.facts.model import layers, parts
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rule import Finding, rule


@rule("error", "init", consumers=("peft",), reads=lora_keys("layer_replication"))
def layer_replication_out_of_range(run: LintContext) -> Iterator[Finding]:
    """`layer_replication` names layers that the model does not have."""
    count = layers(run.model.architecture) if run.model is not None else 0
    for lora in loras(run):
        at = lora.place("layer_replication")
        if at is None or not isinstance(at.value, list):
            continue
        ranges = [each for each in at.value if _is_range(each)]
        empty = next((each for each in ranges if each[0] >= each[1]), None)
        beyond = next((each for each in ranges if count and each[1] > count), None)
        if empty is not None:
            yield Finding(
                f"layer_replication takes no layer from {empty[0]} to {empty[1]}",
                (at.label("an empty range"),),
                ("a range holds its first number, and not its last",),
                "write the smaller number first",
                severity="warning",
                consequence="silent",
            )
        elif beyond is not None:
            yield Finding(
                f"layer_replication reaches layer {beyond[1] - 1} of a model with {count}",
                (at.label("no such layer"),),
                (f"its layers are 0 to {count - 1}; a range does not hold its last number",),
                f"write {count} as the last number",
            )


def _is_range(value: Any) -> bool:
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    return is_pair and all(is_whole(e) for e in value)


@rule("error", "parse", consumers=("peft>=0.15", "axolotl>=0.8"), reads=lora_keys("layers_pattern"))
def layers_pattern_alone(run: LintContext) -> Iterator[Finding]:
    """`layers_pattern` is set without `layers_to_transform`."""
    for lora in adapters(run):
        at, target = lora.place("layers_pattern"), lora.place("target_modules")
        if at is None or not at.value or lora.place("layers_to_transform") is not None:
            continue
        if lora.document.hides("layers_to_transform"):
            continue
        if lora.document.kind != "axolotl" and run.runs("peft>=0.15") is False:
            continue
        if target is not None and isinstance(target.value, str):
            continue  # refused for a reason of its own
        yield Finding(
            "layers_pattern is written without layers_to_transform",
            (at.label("refused"),),
            ("the pattern only says under which name the layers are counted",),
            "remove it, or say which layers",
            Fix((at.removed(),), "safe"),
        )


@rule("error", "init", consumers=("peft",), reads=lora_keys("layers_pattern"))
def layers_pattern_unknown(run: LintContext) -> Iterator[Finding]:
    """`layers_pattern` is not a part of any of the model's module names."""
    if run.model is None:
        return
    names = parts(run.model.architecture)
    for lora in adapters(run):
        at = lora.place("layers_pattern")
        if at is None or lora.place("layers_to_transform") is None:
            continue
        given = at.value if isinstance(at.value, list) else [at.value]
        known = [each for each in given if isinstance(each, str)]
        if known and not any(each in names for each in known):
            stacks = sorted({"layers", "h", "blocks", "block"} & names)
            yield Finding(
                f"layers_pattern {known[0]} is no part of the names of {run.model.path}",
                (at.label("matches nothing"),),
                ("a module counts only if its name holds the pattern and an index",),
                f"write {stacks[0]}" if stacks else "remove it",
            )


@rule("error", "init", consumers=("peft",), reads=lora_keys("layers_to_transform"))
def layers_to_transform_out_of_range(run: LintContext) -> Iterator[Finding]:
    """`layers_to_transform` names layers that the model does not have."""
    count = layers(run.model.architecture) if run.model is not None else 0
    for lora in adapters(run):
        at = lora.place("layers_to_transform")
        if at is None or not count:
            continue
        asked = _indices(at.value)
        lost = [index for index in asked if not 0 <= index < count]
        if not lost:
            continue
        is_all = len(lost) == len(asked)
        yield Finding(
            f"layers_to_transform names {_words(lost)} of a model with layers 0 to {count - 1}",
            (at.label("no such layer"),),
            ("no layer at all is left, which PEFT refuses",)
            if is_all
            else ("PEFT does not report layers that do not exist",),
            f"write indices from 0 to {count - 1}",
            severity=None if is_all else "warning",
            consequence=None if is_all else "silent",
        )


def _indices(value: Any) -> list[int]:
    every = value if isinstance(value, list) else [value]
    return [each for each in every if is_whole(each)]


def _words(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:6]))
    return f"layer {shown}" if len(indices) == 1 else f"layers {shown}"


_REFUSING: Final = ("LoRA", "AdaLoRA", "FourierFT", "HRA")
"""Methods that refuse the pair; the others take the expression and ignore the layers."""


@rule(
    "error", "parse", consumers=("peft",), reads=lora_keys("layers_to_transform", "layers_pattern")
)
def layers_to_transform_with_text(run: LintContext) -> Iterator[Finding]:
    """`layers_to_transform` is set, but `target_modules` is a string."""
    for lora in adapters(run):
        target = lora.place("target_modules")
        if target is None or not isinstance(target.value, str):
            continue
        if lora.document.kind == "llamafactory" or lora.method not in _REFUSING:
            continue
        for name in ("layers_to_transform", "layers_pattern"):
            at = lora.place(name)
            if at is not None:
                yield Finding(
                    f"{name} cannot stand beside target_modules {target.value}",
                    (at.label("refused"), target.label("a string", primary=False)),
                    ("an expression, and all-linear too, has to say the layers itself",),
                    "write target_modules as a list of names",
                )


@rule("warning", "silent", consumers=("peft",), reads=lora_keys("rank_pattern", "alpha_pattern"))
def rank_pattern_unmatched(run: LintContext) -> Iterator[Finding]:
    """`rank_pattern` or `alpha_pattern` names modules that are not targets."""
    for lora in loras(run):
        if not isinstance(lora.targets, tuple) or lora.document.kind in ("sft", "llamafactory"):
            continue
        for name in ("rank_pattern", "alpha_pattern"):
            at = lora.place(name)
            lost = _lost(lora, at.value) if at is not None else []
            if at is not None and lost:
                yield Finding(
                    f"{quoted(lost, 'and')} of {name} is none of LoRA's targets",
                    (at.label("not used"),),
                    ("a pattern only changes modules that are adapted anyway",),
                    "add it to target_modules, or remove it",
                )


def _lost(lora: Lora, patterns: object) -> list[str]:
    targets = lora.targets
    if not isinstance(patterns, dict) or not isinstance(targets, tuple):
        return []
    ends = {last(each) for each in targets}
    return [
        each
        for each in patterns
        if isinstance(each, str) and is_plain(each) and last(each) not in ends
    ]


_REFUSED = ("pissa", "corda", "loftq")
"""peft 0.10.0 to 0.21.2: `pissa_init` and `corda_init` need a float weight, `loftq_init` quantises
the weight itself; `olora_init` dequantises, and the other initialisations do not read the
weight."""


@rule(
    "error",
    "init",
    consumers=("peft",),
    reads=(*lora_keys("init_lora_weights", "loftq_config"), "simpletuner:lora_init_type"),
)
def init_on_quantised_base(run: LintContext) -> Iterator[Finding]:
    """The requested initialisation of adapters needs the base's weights, but they are quantised."""
    yield from _asked_of_simpletuner(run)
    quantised = run.observed("quantization.format")
    if quantised is None or quantised.value in (None, "none"):
        return
    stored = run.place(quantised)
    for lora in loras(run):
        at = _requested(lora)
        if at is None:
            continue
        word = "loftq" if isinstance(at.value, dict) else at.value
        yield _init_finding(at, str(word), str(quantised.value), stored)


def _asked_of_simpletuner(run: LintContext) -> Iterator[Finding]:
    """Report PiSSA in SimpleTuner on a base that bitsandbytes packs.

    SimpleTuner changes LoftQ to `default` beside any quantised base.
    """
    base = next(iter(run.each("simpletuner", "base_model_precision")), None)
    for at in run.each("simpletuner", "lora_init_type"):
        if base is not None and at.value == "pissa" and base.value == "nf4-bnb":
            yield _init_finding(at, str(at.value), str(base.value), base)


def _init_finding(at: Place, word: str, form: str, stored: Place | None) -> Finding:
    return Finding(
        f"{word} initialises adapters from the base's weights, which are {form}",
        (at.label("needs the weights before quantisation"), *also(stored)),
        ("the adapters take a part of the weights, and the rest has to be quantised after it",),
        "initialise on the unquantised model, save the rest, and quantise that",
    )


def _requested(lora: Lora) -> Place | None:
    loftq = lora.place("loftq_config") if lora.document.kind == "axolotl" else None
    if loftq is not None and loftq.value:
        return loftq
    init = lora.place("init_lora_weights")
    word = init.value if init is not None else None
    return init if isinstance(word, str) and word.startswith(_REFUSED) else None


_CONFIGS = {
    "loftq": "loftq_config",
    "eva": "eva_config",
    "corda": "corda_config",
    "lora_ga": "lora_ga_config",
}


@rule(
    "error", "parse", consumers=("peft",), reads=lora_keys("init_lora_weights", *_CONFIGS.values())
)
def loftq_config_mismatch(run: LintContext) -> Iterator[Finding]:
    """LoftQ's configuration is missing, or one is set for an initialisation that is not used."""
    for lora in loras(run):
        if lora.document.kind not in ("peft", "glm4"):
            continue
        if lora.document.hides("init_lora_weights", "loftq_config"):
            continue
        init = lora.place("init_lora_weights")
        word = init.value if init is not None else True
        if word == "loftq" and init is not None and not lora.value("loftq_config"):
            yield Finding(
                "init_lora_weights loftq has no loftq_config",
                (init.label("refused"),),
                ("PEFT has to know the bits that the base will be quantised to",),
                "write loftq_config: {loftq_bits: 4}",
            )
        for name, key in _CONFIGS.items():
            at = lora.place(key)
            if at is not None and at.value and word != name:
                yield Finding(
                    f"{key} is ignored: init_lora_weights is not {name}",
                    (at.label("not used"),),
                    ("PEFT warns and initialises adapters as usual",),
                    f"write init_lora_weights: {name}, or remove it",
                    Fix((at.removed(),), "unsafe"),
                    severity="warning",
                    consequence="silent",
                )
