"""Every device trains, and vLLM is to have one of its own."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.preference.asked import preferences, trl
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_APART: Final = "trl>=0.14,<0.16"
"""Releases in which the main process starts vLLM on a device that does not train."""


def _check(run: Run) -> Iterator[Finding]:
    cluster = run.environment.cluster
    if not run.runs(_APART) or cluster is None or len(cluster.nodes) != 1:
        return
    have = cluster.nodes[0].device_count
    for document, method in preferences(run):
        used = trl(document, "use_vllm")
        if method == "grpo" and used is not None and used.value is True:
            yield from _of(run, document, have)


def _of(run: Run, document: Document, have: int) -> Iterator[Finding]:
    used, named = trl(document, "use_vllm"), trl(document, "vllm_device")
    world = run.world
    count = world.value if world is not None and isinstance(world.value, int) else None
    word = str(named.value) if named is not None else "auto"
    if used is None or count is None:
        return
    number = count if word == "auto" else _number(word)
    if number is None or (count <= number < have):
        return
    place = run.place(world) if world is not None else None
    is_gone = number >= have
    yield Finding(
        f"vLLM asks for device {number} of {have}"
        + ("" if is_gone else f", on which one of {count} processes trains"),
        (
            (named or used).label("a device of its own"),
            *([place.label("these train", primary=False)] if place is not None else []),
        ),
        (f"{count} processes take devices 0 to {count - 1}",),
        f"start {have - 1} processes, or use TRL 0.16 and later with a server",
        severity=None if is_gone else "warning",
        consequence=None if is_gone else "out-of-memory",
    )


def _number(word: str) -> int | None:
    kind, _, number = word.partition(":")
    return int(number) if kind == "cuda" and number.isdecimal() else None


RULE = Rule(
    name="no-device-left-for-vllm",
    severity="error",
    consequence="init",
    consumers=("trl",),
    sources=(
        (
            "trl 0.14.0 and 0.15.2 trainer/grpo_trainer.py `__init__`: The requested device for "
            "vllm is not available; is also used for training; 0.16.1 has a server in its place"
        ),
        "huggingface/open-r1#249, #236",
    ),
    check=_check,
)
