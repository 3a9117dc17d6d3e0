"""Values that the classes of Unsloth's sections refuse."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.rule import Finding, rule
from tunec.compiler.lints.schemas import Fault, Schema, faults, is_in_range, kinds_of

_READS: Final = ("unsloth:*",)


@rule("error", "parse", consumers=("unsloth",), reads=_READS)
def section_value_refused(run: LintContext) -> Iterator[Finding]:
    """A value that the class of its section refuses."""
    for document in run.of("unsloth"):
        for fault in faults(run, document):
            if fault.what != "unknown" and not _is_taken(fault.place.value, fault.schema):
                yield _refused(fault)
        files = document.get("data.local_dataset")
        if files is not None and isinstance(files.value, list):
            yield from _no_paths(files)


def _no_paths(files: Place) -> Iterator[Finding]:
    """A path that is no text."""
    for each in files.value:
        if not isinstance(each, str):
            yield Finding(
                f"`{files.path}` cannot hold {each!r}",
                (files.label("contains a value that is no path"),),
                (),
                "write paths as text",
            )


_TRUTH: Final = frozenset({"0", "off", "f", "false", "n", "no", "1", "on", "t", "true", "y", "yes"})
"""pydantic 2 conversion table: texts that are read as a truth value, in any case."""


def _is_taken(value: Any, schema: Schema) -> bool:
    """Whether pydantic converts the value to the type, as it is not strict."""
    if "enum" in schema:
        is_alike = schema.get("x-any-case") and isinstance(value, str)
        return bool(is_alike) and is_in_range(value.strip().lower(), schema)
    kinds = kinds_of(schema)
    if "boolean" in kinds:
        return (isinstance(value, str) and value.lower() in _TRUTH) or value in (0, 1)
    if "integer" in kinds or "number" in kinds:
        return _is_number(value, whole="integer" in kinds)
    return False


def _is_number(value: Any, *, whole: bool) -> bool:
    """Whether pydantic 2 converts a value to a number: truth values, and texts of numbers."""
    if value is None or isinstance(value, list | dict):
        return False
    try:
        number = float(value)
    except ValueError:
        return False
    is_scientific = whole and isinstance(value, str) and "e" in value.lower()
    return not is_scientific and (not whole or number.is_integer())


def _refused(fault: Fault) -> Finding:
    place, words = fault.place, fault.schema.get("enum")
    if words is None:
        kinds = [kind for kind in kinds_of(fault.schema) if kind != "null"]
        return Finding(
            f"`{place.path}` cannot be {place.value!r}",
            (place.label("of another type"),),
            (),
            f"write {' or '.join(_WORDS[kind] for kind in kinds)}",
        )
    texts = sorted({each for each in words if isinstance(each, str) and each})
    near = nearest(str(place.value), texts)[:1]
    return Finding(
        f"`{place.path}` cannot be {place.value!r}",
        (place.label("not taken"),),
        (f"taken: {quoted(texts)}",),
        f"did you mean {quoted(near)}?" if near else "write one of these",
        Fix((place.replaced(near[0]),), "unsafe") if near else None,
    )


_WORDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
