"""A variable of the environment that is exported behind the last run of the script."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.lines import at_line, lines, scripts
from tunec.compiler.lints.launch.variables import is_read_by_programs
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_EXPORTED: Final = re.compile(r"\s*export\s+([A-Z][A-Z0-9_]*)=")
_NOTHING: Final = re.compile(r"\s*(?:#.*|(?:export\s+)?\w+=\S*|(?:echo|date|wait)\b.*|)")


def _check(run: Run) -> Iterator[Finding]:
    for document in scripts(run):
        last = max(_lines_of_runs(run, document), default=0)
        seen = set[str]()
        for number, line in lines(document):
            found = _EXPORTED.match(line)
            if found is None or not is_read_by_programs(found[1]):
                continue
            is_new = found[1] not in seen and f"{found[1]}=" not in _until(document, last)
            if number > last > 0 and is_new and _starts_nothing(document, number):
                yield Finding(
                    f"{found[1]} is exported behind the run that it is for",
                    (at_line(document, number, found.start(1), len(found[1]), "too late"),),
                    ("a program is given the variables that are set when it is started",),
                    "move the line above the command",
                )
            seen.add(found[1])


def _lines_of_runs(run: Run, document: Document) -> Iterator[int]:
    for each in run.of("launch"):
        at = each.get("script") or each.get("launcher")
        if each.name == document.name and at is not None:
            yield at.span.end_line


def _starts_nothing(document: Document, number: int) -> bool:
    """Whether no command follows: one may start a run by a variable that is set above."""
    return all(_NOTHING.fullmatch(each) for each in document.text.split("\n")[number:])


def _until(document: Document, last: int) -> str:
    return "\n".join(document.text.split("\n")[:last])


RULE = Rule(
    name="variable-set-too-late",
    severity="error",
    consequence="silent",
    consumers=("torch", "nccl"),
    sources=(
        "Bash reference manual 5.2, 3.7.4 Environment: given to a command when it is invoked",
    ),
    check=_check,
)
