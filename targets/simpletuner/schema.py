"""The JSON Schema of SimpleTuner's `config.json`, made from the parser of a release.

Run as `python -m tunec.targets.simpletuner.schema [--check]`: writes one file a release in
`schemas/json/simpletuner`, or says which file differs. Facts only, no help texts.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tunec import schemas
from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose

VERSIONS: Final = ("3.1.6", "4.10.1")
CONSUMER: Final = "tunec.targets.simpletuner.consumer"
SECONDS: Final = 300.0

_FOLDER: Final = Path(schemas.__path__[0], "json", "simpletuner")
_LONGEST_DEFAULT: Final = 80
"""A longer default is a text (`sana_complex_human_instruction`), not a setting."""

# What `mapping_to_cli_args` (helpers/configuration/cli_utils.py, 3.1.6 and 4.10.1) passes on to a
# type of the parser, and no more: the string "false" is dropped and the default stays; an object is
# dropped but for the structured flags; of an array the last item stays; `true` becomes a bare flag.
_VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {"type": ["string", "number", "boolean", "null"], "not": {"const": True}},
    "structure": {"type": ["object", "array", "string", "null"]},
    "integer": {"type": ["integer", "string", "null"], "pattern": r"^\s*[-+]?[0-9]+\s*$"},
    "number": {
        "type": ["number", "string", "null"],
        "pattern": r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$",
    },
    "boolean": {
        "type": ["boolean", "integer", "string", "null"],
        "minimum": 0,
        "maximum": 1,
        "pattern": r"^\s*([tT][rR][uU][eE]|[yY]([eE][sS])?|[nN][oO]?|[oO]([nN]|[fF][fF])|[01])\s*$",
    },
    "boolean-or-text": {"type": ["boolean", "string", "null"]},
    "trackers": {"type": ["string", "array", "null"], "items": {"type": "string"}},
}
_TYPES: Final[Mapping[str, str]] = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "_parse_bool_flag": "boolean",
    "_parse_validation_prompt_library_flag": "boolean-or-text",
    "_parse_report_to_arg": "trackers",
}
"""The parser's type functions (`_determine_cli_type` in helpers/configuration/cmd_args.py)."""


def document(found: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema made from the consumer's answer to `schema`."""
    flags: Mapping[str, Any] = found["flags"]
    optimizers = sorted(found["optimizers"])
    properties = {name: _property(flag) for name, flag in flags.items()}
    properties["optimizer"] = {"enum": optimizers}
    for name, flag in flags.items():
        for option in flag["options"]:
            properties.setdefault(option.lstrip("-"), {"$ref": f"#/properties/{name}"})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"SimpleTuner {found['version']}: config.json, keys without their leading --",
        "$defs": {name: dict(value) for name, value in _VALUES.items()},
        "type": "object",
        "properties": {**dict.fromkeys(found["legacy"], True), **properties},
        "required": sorted(name for name, flag in flags.items() if flag["required"]),
        "additionalProperties": False,
    }


def _property(flag: Mapping[str, Any]) -> dict[str, Any]:
    value: dict[str, Any]
    if flag["choices"] is not None:
        value = {"enum": [*_as_written(flag["choices"]), None]}
    elif flag["structured"]:
        value = {"$ref": "#/$defs/structure"}
    else:
        value = {"$ref": f"#/$defs/{_TYPES[flag['type']]}"}
    if not flag["required"] and _is_setting(flag["default"]):
        value["default"] = flag["default"]
    return value


def _as_written(choices: list[Any]) -> list[Any]:
    """Choices with both spellings in JSON: "64" may be written 64, and 2 as "2"."""
    numbers = [int(choice) for choice in choices if str(choice).isdecimal()]
    words = [str(choice) for choice in choices]
    return [*words, *numbers]


def _is_setting(default: Any) -> bool:
    return default is not None and len(str(default)) <= _LONGEST_DEFAULT


def text(version: str) -> str:
    """The text of a release's schema file. Raises EnvironmentUnavailable."""
    environment = prepare(choose("simpletuner", version).requirements)
    (found,) = ask(environment, CONSUMER, [{"verb": "schema"}], SECONDS)
    return json.dumps(document(found), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def path(version: str) -> Path:
    """The path of a release's schema."""
    return _FOLDER / f"{version}.json"


def main(arguments: list[str] | None = None) -> int:
    """Write every schema, or with `--check` compare; 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file differs"
    )
    check = parser.parse_args(arguments).check
    stale = [version for version in VERSIONS if not _keep(version, check=check)]
    for version in stale:
        sys.stderr.write(f"{path(version)} differs from what simpletuner {version} says\n")
    return 1 if stale else 0


def _keep(version: str, *, check: bool) -> bool:
    """Write one schema, or check whether its file is up to date."""
    made, place = text(version), path(version)
    if check:
        return place.is_file() and place.read_text(encoding="utf-8") == made
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(made, encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main())
