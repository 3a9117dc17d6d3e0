"""A script sets WORLD_SIZE, and starts one process without a rank."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import count, launches, variable
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_RANKS: Final = ("RANK", "LOCAL_RANK")
_TOOLS: Final = re.compile(
    r"(?:\A|[/_.-])(?:tools|merge|convert|split|preprocess|export)(?:[/_.-]|\Z)"
)


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "python"):
        at = variable(document, "WORLD_SIZE")
        world = count(at)
        if at is None or world is None or world < 2 or _is_tool(document):
            continue
        ranks = [f"environment.{name}" for name in _RANKS]
        if any(document.get(key) is not None or key in document.unknown for key in ranks):
            continue
        yield Finding(
            f"WORLD_SIZE is {world}, and python starts one process without a rank",
            (at.label("nobody starts the others"),),
            (
                (
                    "without LOCAL_RANK accelerate and transformers train alone on one device; a "
                    "script that asks torch for its group waits for the other processes"
                ),
            ),
            f"start it by torchrun --nproc_per_node {world}, which sets all of them",
        )


def _is_tool(document: Document) -> bool:
    """Whether what is started trains nothing, and may be told of ranks that it only writes for.

    microsoft/Megatron-DeepSpeed tools/merge_mp_partitions.py reads WORLD_SIZE so.
    """
    words = document.value("script")
    return isinstance(words, list) and bool(words) and _TOOLS.search(str(words[0])) is not None


RULE = Rule(
    name="world-without-launcher",
    severity="error",
    consequence="silent",
    consumers=("torch", "accelerate"),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 state.py `PartialState._prepare_backend`: distributed "
            "where LOCAL_RANK is set"
        ),
        (
            "torch 2.13.0 distributed/rendezvous.py `_env_rendezvous_handler`: RANK expected, "
            "but not set"
        ),
    ),
    check=_check,
)
