"""The consumers' JSON Schemas and tables of defaults, generated from them; shipped with tunec."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

import tunec.schemas
from tunec.compiler.consumers.json_types import Schema, any_of
from tunec.compiler.releases import neighbours
from tunec.schemas.caches import cached

_FOLDER: Final = Path(tunec.schemas.__file__).parent / "json"
AUTO: Final[Schema] = {"const": "auto"}


@cached()
def ds_config_schema(version: str, reader: str | None = None) -> Schema:
    """The schema of ds_config.json for a DeepSpeed release, full (`0.16.4`) or minor (`0.16`).

    `reader` is the transformers release that fills in "auto" before DeepSpeed sees the file; if it
    is None, DeepSpeed reads the file itself and "auto" is not a value. Raises LookupError for an
    unknown minor release.
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

    `version` is that of the distribution with the class (transformers, peft, trl), full or minor.
    An unknown minor release raises LookupError, as fields may have moved between known releases.
    """
    index = _load("huggingface/index.json")[stem]
    schema: Schema = _load(f"huggingface/{index[_of_minor(index, version)]}")
    return schema


@cached()
def known_releases(stem: str) -> tuple[str, ...]:
    """The releases from which the configuration class `stem` was read, oldest first."""
    return tuple(sorted(_load("huggingface/index.json")[stem], key=Version))


def parser_schema(package: str, version: str) -> Schema:
    """The flags of a package's parsers, from the newest known release that is not newer."""
    releases = sorted(parser_releases(package), key=Version)
    fitting = [each for each in releases if Version(each) <= Version(version)]
    schema: Schema = _load(f"{package}/{(fitting or releases)[-1 if fitting else 0]}.json")
    return schema


def parser_default(package: str, unknown: Any, version: str, key: str) -> Any:
    """A flag's value if it is left out: False for a switch; `unknown` if there is no such flag."""
    found = parser_schema(package, version)["properties"].get(key)
    if found is None:
        return unknown
    return found.get("default", False if found.get("type") == "boolean" else None)


def parsers_around(package: str, version: Version) -> tuple[str, ...]:
    """The release itself if its parser was read, else those read before and after it.

    Between two of them it is unknown when a key or a word came or went.
    """
    read = parser_releases(package)
    if str(version) in read:
        return (str(version),)
    return neighbours(version, read)


@cached()
def parser_releases(package: str) -> tuple[str, ...]:
    """The releases of a package from which parsers were read, oldest first."""
    stems = (path.stem for path in (_FOLDER / package).glob("[0-9]*.json"))
    return tuple(sorted(stems, key=Version))


def ds_config_defaults(version: str) -> Mapping[str, Any]:
    """Each key's value if it is left out, by dotted path; None if its reader decides."""
    table = _load("deepspeed/defaults.json")
    minor = ".".join(version.split(".")[:2])
    if minor not in table:
        raise LookupError(f"no defaults are known for deepspeed {version}")
    found: Mapping[str, Any] = table[minor]
    return found


@cached()
def class_defaults(stem: str, version: str) -> Mapping[str, Any]:
    """Each field's value after an object is made with no arguments.

    Raises as `class_schema` does.
    """
    table = _load(f"huggingface/{stem}-defaults.json")
    found: Mapping[str, Any] = table[_of_minor(table, version)]
    return found


@cached()
def automatic_keys(version: str) -> tuple[str, ...]:
    """The dotted keys of a ds_config that a transformers release fills in if they are "auto".

    Between two known releases the older one's keys are used: the number of keys fell once, with
    5.0.0.
    """
    table = _load("huggingface/automatic.json")
    fitting = [known for known in table if _release(known, 2) <= _release(version, 2)]
    if not fitting:
        raise LookupError(f"nothing is known of transformers {version}")
    return tuple(table[max(fitting, key=Version)])


def admit_auto(schema: Schema, keys: Collection[str]) -> Schema:
    """The schema with "auto" allowed at these dotted keys, and nowhere else."""
    return _admit(schema, [key.split(".") for key in keys])


def _admit(schema: Schema, paths: list[list[str]]) -> Schema:
    """Rebuild the schema along the paths; optimizer and scheduler parameters lie under `allOf`."""
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
    """The newest known release with the same minor release. Raises LookupError."""
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
