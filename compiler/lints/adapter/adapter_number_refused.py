"""A number of adapter_config.json that PEFT takes when it is read, and fails on afterwards."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.adapter.lora import Lora, loras
from tunec.compiler.lints.batch.counts import is_number, is_whole
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_NEEDED: Final = ("r", "lora_alpha", "lora_dropout")
"""What arithmetic is done with: null is a TypeError."""
_PATTERNS: Final = ("rank_pattern", "alpha_pattern")
_PLAIN: Final = ("peft", "glm4")
"""Kinds whose values are handed to PEFT as they are."""
_OF_EVA: Final = (("rho", 1.0, None), ("tau", 0.0, 1.0))


def _check(run: Run) -> Iterator[Finding]:
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
                ("PEFT has a default only for a key that is not there",),
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
    meant = round(number)
    return Finding(
        f"{what} is {number}, and has to be a whole number",
        (at.label("refused"),),
        ("it is the size of a matrix: a tuple of ints, but found element of type float",),
        f"write {meant}",
        Fix((at.replaced(meant),), "safe") if meant == number else None,
    )


RULE = Rule(
    name="adapter-number-refused",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.21.2, run: LoraConfig takes any value; tuners/lora/layer.py "
            "`LoraLayer.update_layer`: nn.Linear(in_features, r), lora_alpha / r, "
            "lora_dropout > 0.0; tuners/tuners_utils.py `replicate_layers`: for start, end in"
        ),
        (
            "peft 0.15.2 to 0.21.2 tuners/lora/config.py `EvaConfig.__post_init__`: `rho` must be "
            ">= 1.0; utils/loftq_utils.py `loftq_init`: num_bits not in [4, 8], once 2 too"
        ),
    ),
    check=_check,
)
