"""A value of a type that Axolotl's schema does not take."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, shown
from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

Kinds = frozenset[str]

_TOLD: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_SWITCHES: Final = frozenset(
    {"true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n"}
)
_ELSEWHERE: Final = frozenset({"datasets", "max_memory", "device_map", "deepspeed", "plugins"})
"""Keys whose values another rule, or Axolotl itself before its schema, looks at."""


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        tables = _tables(run, document)
        for key, at in document.found.items() if tables else ():
            if "." in key or key in _ELSEWHERE or key in document.unknown:
                continue
            kinds = [table.get(key) for table in tables]
            if all(each and not _fits(at.value, each) for each in kinds):
                yield _finding(at, kinds[0] or frozenset())


def _tables(run: Run, document: Document) -> list[Mapping[str, Kinds]]:
    """The kinds by key: of the release that is named, or of each that is known."""
    if document.target is None or document.file is None or document.file.schema is None:
        return []
    target, release = document.target, run.release("axolotl")
    known = [str(release.version)] if release.is_named else target.releases
    names = (document.file.schema(target.dialect(target.release(each))) for each in known)
    return [_kinds(name) for name in dict.fromkeys(names) if name is not None]


@cache
def _kinds(name: str) -> Mapping[str, Kinds]:
    read = schema(name)
    named: Mapping[str, Any] = read.get("$defs", {})
    found = {key: _of(rule, named) for key, rule in read.get("properties", {}).items()}
    return {key: kinds for key, kinds in found.items() if kinds}


def _of(rule: Mapping[str, Any], named: Mapping[str, Any]) -> Kinds:
    """The JSON types of a rule; none where it takes anything."""
    found: set[str] = set()
    for part in rule.get("anyOf", (rule,)):
        meant = named.get(str(part.get("$ref", "")).rpartition("/")[2], part)
        kind = meant.get("type") or ("string" if "enum" in meant else None)
        if kind is None:
            return frozenset()
        found |= {kind} if isinstance(kind, str) else set(kind)
    return frozenset(found)


def _fits(value: Any, kinds: Kinds) -> bool:
    """Whether pydantic takes a value for one of the types, as lax as it is."""
    if value is None:
        return "null" in kinds
    if isinstance(value, bool):
        return bool(kinds & {"boolean", "integer", "number"})
    if isinstance(value, int | float):
        is_whole = float(value).is_integer()
        is_switch = "boolean" in kinds and value in (0, 1)
        return is_switch or "number" in kinds or ("integer" in kinds and is_whole)
    if isinstance(value, str):
        return "string" in kinds or _reads(value.strip().lower(), kinds)
    return ("array" if isinstance(value, list) else "object") in kinds


def _reads(text: str, kinds: Kinds) -> bool:
    if "boolean" in kinds and text in _SWITCHES:
        return True
    try:
        number = float(text)
    except ValueError:
        return False
    return "number" in kinds or ("integer" in kinds and number.is_integer())


def _finding(at: Place, kinds: Kinds) -> Finding:
    wanted = joined([_TOLD[each] for each in sorted(kinds) if each in _TOLD], "or")
    is_text = kinds - {"null"} == {"string"} and isinstance(at.value, int | float)
    return Finding(
        f"{at.path} is {shown(at.value)}, not {wanted}",
        (at.label("refused"),),
        (),
        f"write {wanted}" if at.value is not None else f"write {wanted}, or remove the key",
        Fix((at.replaced(str(at.value)),), "unsafe") if is_text else None,
    )


RULE = Rule(
    name="type-refused",
    severity="error",
    consequence="parse",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 to 0.19.0 utils/schemas/config.py: pydantic models in lax mode; run: "
            "Input should be a valid list, a valid integer, got a number with a fractional part, "
            "a valid string"
        ),
    ),
    check=_check,
)
