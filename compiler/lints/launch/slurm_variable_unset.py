"""A script takes a number from a variable that Slurm sets for an option which is not given."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.lines import at_line, lines
from tunec.compiler.lints.launch.scripts import batch_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_USED: Final = re.compile(r"\$(?:\{(SLURM_\w+)\}|(SLURM_\w+))")
_FLAG: Final = re.compile(r"--([\w-]+)[= ]\"?\Z")
_IDLE: Final = re.compile(r"\s*(?:#|(?:echo|printf|if|elif|while|test|\[\[?)(?:\s|\Z))")
"""Lines that start nothing with what a variable holds: they show it, or ask for it."""
_OPTIONS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "SLURM_GPUS_PER_NODE": (("gpus_per_node",), ("gres", "gpus", "gpus_per_task")),
    "SLURM_GPUS": (("gpus",), ("gres", "gpus_per_node", "gpus_per_task")),
    "SLURM_GPUS_PER_TASK": (("gpus_per_task",), ("gres", "gpus", "gpus_per_node")),
    "SLURM_NTASKS_PER_NODE": (("ntasks_per_node",), ("ntasks",)),
}
"""Of each variable the options that set it, and those by which the same is asked for otherwise."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("launch"):
        batch = batch_of(run, document)
        if batch is None or document is not _first(run, document):
            continue
        for number, line in lines(document):
            if not _IDLE.match(line):
                yield from _of_line(document, batch, number, line)


def _first(run: Run, document: Document) -> Document:
    return next(each for each in run.of("launch") if each.name == document.name)


def _of_line(document: Document, batch: Document, number: int, line: str) -> Iterator[Finding]:
    for found in _USED.finditer(line):
        name = found[1] or found[2]
        given, otherwise = _OPTIONS.get(name, ((), ()))
        instead = next((key for key in otherwise if batch.get(key)), None)
        is_given = not given or any(batch.get(key) for key in given) or f"{name}=" in document.text
        if is_given or instead is None or _is_of_a_step(document.text, line, found.start()):
            continue
        option = given[0].replace("_", "-")
        yield Finding(
            f"{name} is not set: the job asks by --{instead.replace('_', '-')}",
            (_label(document, number, line, found),),
            (f"Slurm sets it where --{option} is given",),
            f"write #SBATCH --{option}=..., or the number itself",
        )


def _label(document: Document, number: int, line: str, found: re.Match[str]) -> Label:
    """A label at the variable, under the name of the flag that it is given to."""
    label = at_line(document, number, found.start(), len(found[0]), "empty")
    flag = _FLAG.search(line[: found.start()])
    return label if flag is None else replace(label, path=f"flags.{flag[1].replace('-', '_')}")


def _is_of_a_step(text: str, line: str, at: int) -> bool:
    """Whether srun gives the option itself, or the variable is only put in within single quotes."""
    is_quoted = line.count("'", 0, at) % 2 == 1
    return is_quoted or re.search(r"\bsrun\b[^\n]*--(gpus|ntasks)", text) is not None


RULE = Rule(
    name="slurm-variable-unset",
    severity="error",
    consequence="init",
    consumers=("slurm",),
    sources=(
        (
            "Slurm 24.05 sbatch manual page, OUTPUT ENVIRONMENT VARIABLES: SLURM_GPUS_PER_NODE, "
            "SLURM_GPUS, SLURM_GPUS_PER_TASK, SLURM_NTASKS_PER_NODE: only set if the option is "
            "specified"
        ),
        "torch 2.13.0 distributed/run.py: Unsupported nproc_per_node value",
    ),
    check=_check,
)
