"""Keys that the section which holds them does not have."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.checks.keys.names import is_near
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.rule import Finding, rule
from tunec.compiler.lints.schemas import Fault, Schema, faults, schemas

KINDS: Final = ("unsloth", "verl")
"""Kinds of files that are sections, each with a schema of its own."""


@rule(
    "key-outside-its-section",
    "error",
    "parse",
    consumers=KINDS,
    reads=tuple(f"{kind}:*" for kind in KINDS),
)
def key_outside_its_section(run: LintContext) -> Iterator[Finding]:
    """A key that the section which holds it does not have."""
    for document in chain.from_iterable(map(run.of, KINDS)):
        for fault in faults(run, document):
            if fault.what == "unknown":
                yield _not_here(fault, schemas(run, document)[0])


def _not_here(fault: Fault, whole: Schema) -> Finding:
    holder, _, name = fault.path.rpartition(".")
    where = f"section `{holder}`" if holder else "the file"
    return Finding(
        f"{where} has no key `{name}`",
        (fault.place.key_label("refused" if fault.is_refused else "ignored"),),
        () if fault.is_refused else ("it is silently dropped",),
        *_instead(fault.place, holder, name, whole, fault.schema),
        consequence=None if fault.is_refused else "silent",
        severity=None if fault.is_refused else "warning",
    )


def _instead(
    place: Place, holder: str, name: str, whole: Schema, around: Schema
) -> tuple[str, Fix | None]:
    """What is meant: a key of another section, or one of nearly the same name here."""
    said = name.replace("-", "_")
    home = next((path for path in _paths(whole) if path.rpartition(".")[2] == said), None)
    if home is not None and home.rpartition(".")[0] != holder:
        section = home.rpartition(".")[0]
        return (f"move it to section `{section}`" if section else "move it to the top"), None
    near = nearest(said, around.get("properties", {}))[:1]
    if (
        near
        and is_near(said, frozenset(near))
        and place.document.get(f"{holder}.{near[0]}" if holder else near[0]) is None
    ):
        return f"did you mean `{near[0]}`?", Fix((place.renamed(near[0]),), "unsafe")
    return "remove it", None


def _paths(whole: Schema) -> Iterator[str]:
    for name, each in whole["properties"].items():
        yield name
        yield from (f"{name}.{key}" for key in each.get("properties", {}))
