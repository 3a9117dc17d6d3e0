"""Documents against the schemas of their readers: unknown keys, and values not taken.

A small reader of the JSON Schemas in `schemas/json/`: it knows the words that these use, tells an
unknown key from a value of another type, and keeps the place of each. `jsonschema` would take
longer to import than all of linting.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.consumers.schemas import class_schema, ds_config_releases, ds_config_schema
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.effective import CLASSES, filling_release, known_around
from tunec.compiler.lints.kinds import schema
from tunec.schemas.caches import ByIdentity
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.lints.context import LintContext

Schema = Mapping[str, Any]
What = Literal["unknown", "type", "value"]


class Fault(Struct, frozen=True):
    """One place where a document does not fit its reader's schema."""

    what: What
    """`unknown`: no such key here. `type`: a value of another type. `value`: of the right type, and
    out of range or not one of the words."""
    place: Place
    path: str
    """By the keys of the document's kind."""
    schema: Schema
    """Of the value; for an unknown key, of the mapping that holds it."""
    is_refused: bool
    """Whether the reader refuses it; otherwise it says nothing."""
    is_checked: bool = False
    """Whether the mapping around it is one that checks its values (pydantic), as blocks of
    DeepSpeed do that refuse keys which they do not know."""


def faults(run: "LintContext", document: Document) -> Iterator[Fault]:
    """Every fault of a document by the schema of its reader's release; none where that is unknown.

    A document whose reader lies between two known releases is at fault only where it is by both.
    """
    return iter(run.faults(document))


def faults_of(run: "LintContext", document: Document) -> Iterator[Fault]:
    """Every fault of a document, as `faults` gives it, found anew and not remembered."""
    found = [list(_faults(document, each)) for each in schemas(run, document)]
    if not found:
        return
    others = [{(fault.path, fault.what) for fault in each} for each in found[1:]]
    for fault in found[0]:
        if all((fault.path, fault.what) in each for each in others):
            yield fault


def is_everywhere(run: "LintContext", document: Document, fault: Fault) -> bool:
    """Whether a fault of a DeepSpeed file is one in every known release, if none is named."""
    if document.kind != "deepspeed" or run.release("deepspeed").is_known:
        return True
    every = (ds_config_schema(each, _filler(run)) for each in ds_config_releases())
    return all(
        any((fault.path, fault.what) == (each.path, each.what) for each in _faults(document, known))
        for known in every
    )


_WITH_OWN_SCHEMA: Final = ("nemo-automodel", "unsloth", "verl")
"""Kinds of which the target's file names the schema of a release."""


def schemas(run: "LintContext", document: Document) -> tuple[Schema, ...]:
    """The schema of each release that may read a document, or of those before and after it."""
    if document.kind == "deepspeed":
        return _deepspeed(run)
    if document.kind in _WITH_OWN_SCHEMA:
        return _of_its_file(run, document)
    for stem, package in CLASSES.get(document.kind, ())[:1]:
        around = known_around(stem, run.release(package))
        return tuple(class_schema(stem, each) for each in around)
    return ()


def _of_its_file(run: "LintContext", document: Document) -> tuple[Schema, ...]:
    """The schema that the target's own file has in the release that runs."""
    target, file = document.target, document.file
    if target is None or file is None or file.schema is None:
        return ()
    name = file.schema(target.dialect(run.release(target.package).version))
    return () if name is None else (schema(name),)


def unknown_to(run: "LintContext", document: Document, release: str) -> frozenset[str]:
    """The keys of a ds_config.json that a release of DeepSpeed does not know."""
    known = ds_config_schema(release, _filler(run))
    return frozenset(each.path for each in _faults(document, known) if each.what == "unknown")


def _filler(run: "LintContext") -> str | None:
    return None if run.deepspeed_reader == "plain" else filling_release(run)


def _deepspeed(run: "LintContext") -> tuple[Schema, ...]:
    reader, newest = _filler(run), ds_config_releases()[-1]
    every = run.release("deepspeed").candidates
    read_as = [newest if each > Version(f"{newest}.99") else str(each) for each in every]
    try:
        return tuple(ds_config_schema(each, reader) for each in read_as)
    except LookupError:
        return ()


def _faults(document: Document, schema: Schema) -> Iterator[Fault]:
    sound = None if "allOf" in schema or document.is_view else _SOUND.of(schema)
    for key, words in document.written.items():
        if "." in key:
            continue
        said = document.kind, key, words
        if sound is not None and said in sound:
            continue
        found = list(_key(document, key, document.found[key], schema))
        if sound is not None and not found and len(sound) < _MOST_SOUND:
            sound.add(said)
        yield from found


_MOST_SOUND: Final = 4096


def _nothing(_: Schema) -> set[tuple[str, ...]]:
    return set()


_SOUND: Final = ByIdentity("compiler.lints.schemas.sound", 256, _nothing, lasting=True)
"""Keys with values that a schema was seen to admit, by kind of document.

They are admitted wherever no key's schema depends on what another one says.
"""


def _key(document: Document, path: str, place: Place, around: Schema) -> Iterator[Fault]:
    name = path.rpartition(".")[2]
    inner = _property(around, name, document, path.rpartition(".")[0])
    is_refused = around.get("x-unknown", "refused") == "refused"
    if inner is None:
        if around.get("additionalProperties", True) is False:
            yield Fault("unknown", place, path, around, is_refused)
        return
    is_checked = is_refused and around.get("additionalProperties") is False
    for fault in _value(document, path, place, inner):
        yield replace(fault, is_checked=is_checked) if fault.path == path else fault


def _property(around: Schema, name: str, document: Document, holder: str) -> Schema | None:
    """The schema of a key, also where it depends on the word of `type` beside it."""
    found: Schema | None = around.get("properties", {}).get(name)
    for each in around.get("allOf", ()):
        if "then" in each and _holds(each.get("if", {}), document, holder):
            inner = each["then"].get("properties", {}).get(name)
            if inner is not None:
                return dict(inner)
    return found


def _holds(condition: Schema, document: Document, holder: str) -> bool:
    for name, wanted in condition.get("properties", {}).items():
        value = document.value(f"{holder}.{name}" if holder else name)
        if "const" in wanted and value != wanted["const"]:
            return False
        if not isinstance(value, str) or not re.search(wanted.get("pattern", ""), value):
            return False
    return True


def _value(document: Document, path: str, place: Place, schema: Schema) -> Iterator[Fault]:
    choices = schema.get("anyOf", (schema,))
    value = place.value
    fitting = [each for each in choices if _type_fits(value, each)]
    if value == "auto" and document.kind == "deepspeed":
        return  # who fills it in, or does not, is a rule of its own
    if not fitting:
        yield Fault("type", place, path, schema, is_refused=True)
    elif place.node.fields is not None:
        inner = next((e for e in fitting if "properties" in e), None)
        for key, child in place.node.fields.items():
            at = document.get(f"{path}.{key}")
            if inner is not None and at is not None and child is not None:
                yield from _key(document, f"{path}.{key}", at, inner)
    elif not any(is_in_range(value, each) for each in fitting):
        yield Fault("value", place, path, schema, is_refused=True)


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def _type_fits(value: Any, schema: Schema) -> bool:
    kinds = kinds_of(schema)
    if "const" in schema:
        return bool(value == schema["const"])
    if not kinds:
        return "enum" not in schema or any(type(value) is type(each) for each in schema["enum"])
    if isinstance(value, bool):
        return "boolean" in kinds
    if isinstance(value, float) and value.is_integer() and "integer" in kinds:
        return True
    return any(isinstance(value, _TYPES[kind]) for kind in kinds)


def kinds_of(schema: Schema) -> tuple[str, ...]:
    """The JSON types that a schema names; none: any."""
    if "anyOf" in schema:
        return tuple(kind for each in schema["anyOf"] for kind in kinds_of(each))
    kind = schema.get("type", ())
    if not kind and "enum" in schema:
        return tuple(dict.fromkeys(_kind(each) for each in schema["enum"]))
    return (kind,) if isinstance(kind, str) else tuple(kind)


def _kind(value: Any) -> str:
    return next(name for name, kinds in _TYPES.items() if type(value) in kinds)


def is_in_range(value: Any, schema: Schema) -> bool:
    """Whether a value is one of a schema's words, or within its bounds."""
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if isinstance(value, list) and "items" in schema:
        words = (each for each in value if isinstance(each, str))
        return all(is_in_range(each, schema["items"]) for each in words)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    low, high = schema.get("minimum", value), schema.get("maximum", value)
    return bool(low <= value <= high and value > schema.get("exclusiveMinimum", value - 1))


# ── where keys belong ────────────────────────────────────────────────────────────────────────────


def paths_of(schema: Schema, prefix: str = "") -> Iterator[str]:
    """Every dotted path that a schema knows."""
    for name, inner in schema.get("properties", {}).items():
        yield prefix + name
        yield from paths_of(inner, f"{prefix}{name}.")
    for each in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
        yield from paths_of(each.get("then", each), prefix)


def newest(stem: str) -> str:
    """The newest known release of a class."""
    from tunec.compiler.consumers.schemas import known_releases

    return known_releases(stem)[-1]
