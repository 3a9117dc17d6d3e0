"""Places each key that a plan passes through in the file whose reader's schema has the key."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import did_you_mean, joined, nearest, quoted
from tunec.compiler.ir.extra import Extra, extras
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Dialect, Entry, File, Json, Target

SchemaOf = Callable[[str], Json]
"""Loads the JSON Schema at a path below `schemas/json/`."""


class PlacedKey(Struct, frozen=True):
    """A key and the file that it goes into; `path` is its path in that file."""

    extra: Extra
    file: str
    path: str


def belongs(file: File, target: Target, owner: str) -> bool:
    """Whether a file belongs to an owner: the target of that name, or the program that reads it."""
    if owner == target.name:
        return True
    return file.schema is not None and all(each.package == owner for each in file.entries)


def place(
    target: Target, files: Iterable[File], plan: Plan, dialect: Dialect, schema_of: SchemaOf
) -> tuple[tuple[PlacedKey, ...], tuple[Diagnostic, ...]]:
    """The file of each key that is meant for one of a target's files, and all faults."""
    every = tuple(files)
    mine = (
        (extra, tuple(file for file in every if belongs(file, target, extra.owner)))
        for extra in extras(plan)
    )
    answers = [placed_alone(extra, owned, dialect, schema_of) for extra, owned in mine if owned]
    placed = tuple(each for each in answers if isinstance(each, PlacedKey))
    return placed, tuple(each for each in answers if isinstance(each, Diagnostic))


def unread(asked: Iterable[Target], plan: Plan) -> Iterator[Diagnostic]:
    """A note for each name under `extra` that owns no file of a requested target."""
    targets = tuple(asked)
    owners = dict.fromkeys(each.owner for each in extras(plan))
    for owner in owners:
        if any(belongs(file, target, owner) for target in targets for file in target.files):
            continue
        names = joined((target.name for target in targets), "and")
        yield Diagnostic(
            "extra-unread",
            "note",
            f"extra has settings for {owner}, but {names} writes no such file",
            (Label("not passed through", path=f"extra.{owner}"),),
            help=did_you_mean(nearest(owner, (target.name for target in targets), 1)),
        )


def placed_alone(
    extra: Extra, files: tuple[File, ...], dialect: Dialect, schema_of: SchemaOf
) -> PlacedKey | Diagnostic:
    """The file of its owner that a key goes into, or the fault if there is none."""
    if not _is_finite(extra.value):
        return _fault(extra, "it holds a number that JSON cannot", "write a finite number")
    named = tuple(file for file in files if extra.path.startswith(f"{file.name}."))
    path = extra.path.removeprefix(f"{named[0].name}.") if named else extra.path
    asked = named or files
    paths = {file.name: _in_block(file, path) for file in asked}
    for file in asked:
        for entry in file.entries:
            if entry.holds_in(dialect) and not entry.yields and _speaks_of(entry, paths[file.name]):
                return _decided(extra, file, entry)
    schemas = {file.name: _schema(file, dialect, schema_of) for file in asked}
    known = {name: each for name, each in schemas.items() if each is not None}
    strange = {name: _stranger(each, paths[name]) for name, each in known.items()}
    fitting = [name for name, found in strange.items() if found is None]
    if len(fitting) == 1:
        return PlacedKey(extra, fitting[0], paths[fitting[0]])
    if fitting:
        how = f"name the file: `extra: {{{extra.owner}: {{{fitting[0]}: ...}}}}`"
        return _fault(extra, f"{joined(fitting, 'and')} both have this key", how)
    if not known:
        names = joined(schemas, "and")
        return _fault(extra, f"no schema of {names} is available to check the key")
    return _unknown(extra, path, strange)


def _is_finite(value: Json) -> bool:
    """Whether every number in a value is finite."""
    inner = value.values() if isinstance(value, dict) else value
    if isinstance(inner, str) or not isinstance(inner, Iterable):
        return not isinstance(inner, float) or isfinite(inner)
    return all(map(_is_finite, inner))


def _in_block(file: File, path: str) -> str:
    """A key as the file has it; a key of the file's block may be given without the block's name."""
    block = file.block[0] if file.block else ""
    return path if not block or path.startswith(f"{block}.") else f"{block}.{path}"


def _unknown(extra: Extra, path: str, strange: Mapping[str, tuple[str, ...] | None]) -> Diagnostic:
    """The fault of a key that no file has; `strange` holds the keys that each file knows."""
    near = nearest(
        path.rpartition(".")[2], [name for each in strange.values() for name in each or ()]
    )
    has = "has" if len(strange) == 1 else "have"
    text = f"{joined(strange, 'and')} of this release {has} no `{path}`"
    return _fault(extra, text, did_you_mean(near[:1]))


def _schema(file: File, dialect: Dialect, schema_of: SchemaOf) -> Json | None:
    key, schema = file.block or ("", file.schema)
    name = schema(dialect) if schema else None
    if name is None:
        return None
    return {"properties": {key: schema_of(name)}} if key else schema_of(name)


def _speaks_of(entry: Entry, path: str) -> bool:
    """Whether a row has the key, a key inside it, or what is around it."""
    return any(
        key == path or key.startswith(f"{path}.") or path.startswith(f"{key}.")
        for key in entry.keys
    )


def _decided(extra: Extra, file: File, entry: Entry) -> Diagnostic:
    text = f"tunec decides this key of {file.name}"
    if not entry.slots:
        return _fault(extra, f"{text} by the rest of the plan", "leave it out")
    pins = quoted((f"pin.{slot}" for slot in entry.slots), "or")
    return _fault(extra, f"{text} by {joined(entry.slots, 'and')}", f"set it with {pins}")


def inside_a_value(placed: PlacedKey) -> Diagnostic:
    """The fault of a key below one whose value is no mapping."""
    return _fault(
        placed.extra,
        f"what is above it in {placed.file} is no mapping",
        "leave it out, or write the whole value of the key above it",
    )


def _fault(extra: Extra, text: str, how: str | None = None) -> Diagnostic:
    label = Label("passed through here", path=extra.place)
    message = f"`{extra.path}` cannot be passed through to {extra.owner}: {text}"
    return Diagnostic("E0919", "error", message, (label,), help=how)


def is_known(schema: Json, path: str) -> bool:
    """Whether a schema has a dotted key, or does not say what is around it."""
    return _stranger(schema, path) is None


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────


def _stranger(schema: Json, path: str) -> tuple[str, ...] | None:
    """The known names where a part of a path is none of them; None where every part is known."""
    here = [schema]
    for part in path.split("."):
        names = {key: each for one in here for key, each in one.get("properties", {}).items()}
        if not names:
            return None
        if part not in names:
            return tuple(names)
        here = list(_alternatives(names[part], schema))
    return None


def _alternatives(schema: Json, root: Json) -> Iterator[Mapping[str, Json]]:
    """A schema with all that it refers to or chooses among."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    if "$ref" in schema:
        found = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        yield from _alternatives(found, root)
    for word in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(word, ()):
            yield from _alternatives(each, root)
