"""Whose script flags are given to: transformers' examples, a maker's, or a fork's own package."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.frontend.shell_references import OF_EXAMPLES
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place

_PACKAGE: Final = re.compile(r"(?:\A|/)(\w+)/train/\w+\.py\Z")


def packages(run: LintContext, document: Document) -> frozenset[str]:
    """The packages whose scripts are started with the flags: `llava` of `llava/train/train.py`."""
    found = (_PACKAGE.search(program(place)) for place in _scripts(run, document))
    return frozenset(each[1] for each in found if each)


def starts_one_of(run: LintContext, document: Document, programs: re.Pattern[str]) -> bool:
    """Whether the flags' own file starts a script of such a path."""
    return any(programs.search(program(place)) for place in _scripts(run, document))


def example_of(run: LintContext, document: Document) -> Place | None:
    """Where the script of the flags' own file starts an example, if it starts no other script."""
    scripts = list(_scripts(run, document))
    found = [place for place in scripts if OF_EXAMPLES.search(program(place))]
    return found[0] if found and len(found) == len(scripts) else None


def starts_an_example(run: LintContext, document: Document) -> bool:
    """Whether flags are those of an example of transformers."""
    return document.format == "shell" and example_of(run, document) is not None


def _scripts(run: LintContext, document: Document) -> Iterator[Place]:
    for each in run.of("launch"):
        place = each.get("script")
        if each.name == document.name and place is not None:
            yield place


def program(place: Place) -> str:
    """The path of the script that a launcher starts."""
    words = place.value if isinstance(place.value, list) else [place.value]
    return str(words[0]) if words else ""
