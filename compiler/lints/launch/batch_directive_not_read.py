"""A line of options for Slurm that sbatch does not read, or not as it is meant."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.lines import at_line, lines
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OPTIONS: Final = re.compile(r"#SBATCH[ \t]+(\S.*)")
_APART: Final = re.compile(r"#[ \t]+SBATCH[ \t]+--?([a-z][\w-]*)")
_TEXT: Final = re.compile(r"""(?<!<)<<-?\s*["'\\]?([A-Za-z_]\w*)""")
_VARIABLE: Final = re.compile(r"\$\{?[A-Za-z_]\w*\}?")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("slurm"):
        began: tuple[int, str] | None = None
        for number, line in _of_the_script(lines(document)):
            options = _OPTIONS.match(line)
            if options is None:
                apart = _APART.match(line)
                if began is None and apart is not None:
                    yield from _apart(document, number, line, apart[1])
                if began is None and line.strip() and not line.lstrip().startswith("#"):
                    began = number, line
                continue
            if began is not None:
                yield _late(document, number, line, began)
            elif (variable := _VARIABLE.search(options[1])) is not None:
                yield _literal(document, number, line, variable[0])


def _of_the_script(every: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines without texts that the script writes elsewhere, as another job's script is."""
    end: str | None = None
    for number, line in every:
        if end is not None:
            end = None if line.strip() == end else end
            continue
        yield number, line
        begun = None if line.lstrip().startswith("#") else _TEXT.search(line)
        end = begun[1] if begun is not None else None


def _late(document: Document, number: int, line: str, began: tuple[int, str]) -> Finding:
    return Finding(
        f"`{line.strip()}` stands behind the first command, and sbatch does not read it",
        (
            at_line(document, number, 0, len(line), "a comment"),
            at_line(document, began[0], 0, len(began[1]), "the first command", primary=False),
        ),
        ("sbatch stops looking for options at the first line that is neither empty nor a comment",),
        "move every #SBATCH line above the first command",
    )


def _apart(document: Document, number: int, line: str, option: str) -> Iterator[Finding]:
    """`# SBATCH`, unless another line says the option, and this one is out of use."""
    if document.get(option.replace("-", "_")) is None:
        yield Finding(
            f"`{line.strip()}` is a comment: sbatch reads #SBATCH without a blank",
            (at_line(document, number, 0, len(line), "not read"),),
            (),
            "write #SBATCH, or remove the line",
            severity="warning",
        )


def _literal(document: Document, number: int, line: str, name: str) -> Finding:
    return Finding(
        f"`{line.strip()}` is taken literally: sbatch does not put in {name}",
        (at_line(document, number, line.index(name), len(name), "not replaced"),),
        ("sbatch reads the options before any shell runs the script",),
        "write the value itself, or give the option to sbatch on the command line",
        consequence="init",
    )


RULE = Rule(
    name="batch-directive-not-read",
    severity="error",
    consequence="silent",
    consumers=("slurm",),
    sources=(
        (
            "Slurm 24.05 sbatch manual page, DESCRIPTION: options preceded with #SBATCH before any "
            "executable commands; processing stops at the first non-comment non-whitespace line"
        ),
    ),
    check=_check,
)
