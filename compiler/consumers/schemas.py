"""The consumers' own JSON Schemas and default tables, generated from them, shipped with tunec."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

import tunec.schemas
from tunec.compiler.consumers.json_types import Schema, any_of
from tunec.schemas.caches import cached

_FOLDER: Final = Path(tunec.schemas.__file__).parent / "json"
AUTO: Final[Schema] = {"const": "auto"}


@cached()
def ds_config_schema(version: str, reader: str | None = None) -> Schema:
    """The schema of ds_config.json for a DeepSpeed release, whole (`0.16.4`) or minor (`0.16`).

    `reader` is the transformers release that fills in "auto" before DeepSpeed sees the file; with
    None DeepSpeed reads it itself and "auto" is no value. Raises LookupError for a minor release
    that is not known.
    """
    minor = ".".join(version.split(".")[:2])
    if not (_FOLDER / "deepspeed" / f"{minor}.json").exists():
        raise LookupError(f"no schema of ds_config.json is known for deepspeed {version}")
    schema: Schema = _load(f"deepspeed/{minor}.json")
    return schema if reader is None else admit_auto(schema, automatic_keys(reader))


@cached()
def ds_config_releases() -> tuple[str, ...]:
    """The minor releases of DeepSpeed whose ds_config.json is known, oldest first."""
    stems = (path.stem for path in (_FOLDER / "deepspeed").glob("[0-9]*.json"))
    return tuple(sorted(stems, key=lambda each: [int(part) for part in each.split(".")]))


@cached()
def class_schema(stem: str, version: str) -> Schema:
    """The schema of a configuration class: `training_arguments`, `lora_config`, `sft_config` ...

    `version` is of the distribution that holds the class (transformers, peft, trl), whole or minor.
    Between two known releases the fields may have moved, so a release whose minor is not known
    raises LookupError.
    """
    index = _load("huggingface/index.json")[stem]
    schema: Schema = _load(f"huggingface/{index[_of_minor(index, version)]}")
    return schema


@cached()
def known_releases(stem: str) -> tuple[str, ...]:
    """The releases whose configuration class `stem` was read, oldest first."""
    return tuple(sorted(_load("huggingface/index.json")[stem], key=Version))


def parser_schema(package: str, version: str) -> Schema:
    """What the parsers of a package take: the newest release known that is not newer."""
    releases = sorted(parser_releases(package), key=Version)
    fitting = [each for each in releases if Version(each) <= Version(version)]
    schema: Schema = _load(f"{package}/{(fitting or releases)[-1 if fitting else 0]}.json")
    return schema


def parser_default(package: str, unknown: Any, version: str, key: str) -> Any:
    """What a parser takes of a flag that is left out: false for a switch; `unknown` for no flag."""
    found = parser_schema(package, version)["properties"].get(key)
    if found is None:
        return unknown
    return found.get("default", False if found.get("type") == "boolean" else None)


@cached()
def parser_releases(package: str) -> tuple[str, ...]:
    """The releases of a package whose parsers were read, oldest first."""
    stems = (path.stem for path in (_FOLDER / package).glob("[0-9]*.json"))
    return tuple(sorted(stems, key=Version))


def ds_config_defaults(version: str) -> Mapping[str, Any]:
    """Each key's value when it is left out, by dotted path; None where its reader decides."""
    table = _load("deepspeed/defaults.json")
    minor = ".".join(version.split(".")[:2])
    if minor not in table:
        raise LookupError(f"no defaults are known for deepspeed {version}")
    found: Mapping[str, Any] = table[minor]
    return found


@cached()
def class_defaults(stem: str, version: str) -> Mapping[str, Any]:
    """Each field's value once an object with nothing set has settled; as `class_schema`."""
    table = _load(f"huggingface/{stem}-defaults.json")
    found: Mapping[str, Any] = table[_of_minor(table, version)]
    return found


@cached()
def automatic_keys(version: str) -> tuple[str, ...]:
    """The dotted keys of a ds_config that a transformers release fills in where they say "auto".

    Between two known releases it is the older one's: the keys went down once, with 5.0.0.
    """
    table = _load("huggingface/automatic.json")
    fitting = [known for known in table if _release(known, 2) <= _release(version, 2)]
    if not fitting:
        raise LookupError(f"nothing is known of transformers {version}")
    return tuple(table[max(fitting, key=Version)])


def admit_auto(schema: Schema, keys: Collection[str]) -> Schema:
    """The schema with "auto" admitted at those dotted keys, and nowhere else."""
    return _admit(schema, [key.split(".") for key in keys])


def _admit(schema: Schema, paths: list[list[str]]) -> Schema:
    """Rebuild along the paths; parameters of optimizers and schedules lie under `allOf`."""
    found = dict(schema)
    for name in {path[0] for path in paths} & set(schema.get("properties", {})):
        inner = schema["properties"][name]
        deeper = [path[1:] for path in paths if path[0] == name and len(path) > 1]
        changed = _admit(inner, deeper) if deeper else any_of([inner, AUTO])
        found["properties"] = {**found["properties"], name: changed}
    for word in ("allOf", "anyOf"):
        if word in schema:
            found[word] = [_admit(each, paths) for each in schema[word]]
    if "then" in schema:
        found["then"] = _admit(schema["then"], paths)
    return found


def _of_minor(known: Collection[str], version: str) -> str:
    """The known release of the same minor release."""
    fitting = [each for each in known if _release(each, 2) == _release(version, 2)]
    if not fitting:
        listed = ", ".join(sorted(known, key=Version))
        raise LookupError(f"release {version} is not known (known: {listed})")
    return max(fitting, key=Version)


def _release(version: str, parts: int) -> tuple[int, ...]:
    return Version(version).release[:parts]


@cached()
def _load(path: str) -> Any:
    return json.loads((_FOLDER / path).read_text(encoding="utf-8"))
