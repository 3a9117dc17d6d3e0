"""Nodes meet under an id, or at an address, that each of them says otherwise."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.lines import at_offset, scripts
from tunec.compiler.lints.launch.scripts import count, launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DRAWN: Final = re.compile(
    r"--rdzv[_-]id[= ]\"?(\$\{?RANDOM\}?|\$\$|\$\((?:date|uuidgen|hostname)\b[^)]*\)|`date[^`]*`)"
)
"""What a shell says otherwise on each node, or at each start."""
_OWN_PLACE: Final = re.compile(
    r"\bsrun\b[^\n']*\b(?:ba|z)?sh\s+-l?c\s+'[^']*"
    r"--(?P<flag>rdzv[_-]endpoint|master[_-]addr)[= ](?P<host>\$\(hostname[^)]*\)|\$\{?HOSTNAME\}?)"
)
"""In single quotes: the shell of each node says the name, and not the one that calls srun."""


def _check(run: Run) -> Iterator[Finding]:
    batches = {each.name for each in run.of("slurm")}
    for document in scripts(run):
        if document.name not in batches and _has_nodes(run, document):
            yield from _drawn(document)
        yield from _own_place(document)


def _has_nodes(run: Run, document: Document) -> bool:
    mine = (each for each in launches(run, "torchrun") if each.name == document.name)
    return any((count(each.get("nodes")) or 0) > 1 for each in mine)


def _drawn(document: Document) -> Iterator[Finding]:
    """A batch script is run once, and srun hands its words to all nodes; others are run on each."""
    for found in _DRAWN.finditer(document.text):
        yield Finding(
            f"--rdzv_id {found[1]} is another one on each node",
            (_label(document, found.start(1), found[1], "rdzv_id", "each node draws its own"),),
            ("nodes of one run have the same id; each waits for others under its own",),
            "write the same word for all nodes",
        )


def _own_place(document: Document) -> Iterator[Finding]:
    for found in _OWN_PLACE.finditer(document.text):
        host, flag = found["host"], found["flag"].replace("-", "_")
        yield Finding(
            f"--{flag} {host} is the name of each node itself",
            (_label(document, found.start("host"), host, flag, "said on each node"),),
            (
                (
                    "srun starts this shell on every node, and in single quotes that shell puts "
                    "the name in: each node waits for the others at itself"
                ),
            ),
            "set the first node's name before srun: $(scontrol show hostnames | head -n 1)",
        )


def _label(document: Document, start: int, word: str, flag: str, text: str) -> Label:
    return replace(at_offset(document, start, len(word), text), path=f"flags.{flag}")


RULE = Rule(
    name="meeting-of-another-name",
    severity="error",
    consequence="hang",
    consumers=("torch",),
    sources=(
        (
            "torch 2.13.0 distributed/run.py: --rdzv-id is a unique job id, shared by all nodes "
            "participating in the job; --rdzv-endpoint is one place for all"
        ),
        "GNU Bash 5.2 manual, 3.1.2.2 Single Quotes: nothing is put in within them",
    ),
    check=_check,
)
