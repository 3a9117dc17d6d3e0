"""The JSON Schema of a program's flags, from its own parser."""

import argparse
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final
from unittest.mock import patch

from tunec.compiler.consumers.json_types import plain
from tunec.targets.openrlhf.consumer.programs import RAY, importable, run, stood_in

_TYPES: Final = {int: "integer", float: "number", str: "string", None: "string"}


class _Parsed(Exception):
    """Raised when a program would read its flags."""


def schema(question: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the flags of a `program` of openrlhf.cli.

    Flags with dots are sections: utils/config.py `hierarchize`.
    """
    found: list[argparse.ArgumentParser] = []

    def stop(parser: argparse.ArgumentParser, *_: Any) -> None:
        found.append(parser)
        raise _Parsed

    stopped = patch.object(argparse.ArgumentParser, "parse_args", stop)
    with importable(), stood_in(RAY), stopped, suppress(_Parsed):
        run(f"openrlhf.cli.{question['program']}", (), {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"flags of openrlhf.cli.{question['program']}",
        "x-consumer": f"openrlhf=={version('openrlhf')}",
        "x-unknown": "refused",
        **_section(dict(_flags(found[0]))),
    }


def _flags(parser: argparse.ArgumentParser) -> Iterator[tuple[str, dict[str, Any]]]:
    for action in parser._actions:  # noqa: SLF001  argparse has no other list of them
        for flag in action.option_strings:
            if flag.startswith("--") and flag != "--help":
                yield flag.removeprefix("--"), _flag(action)


def _flag(action: argparse.Action) -> dict[str, Any]:
    if action.nargs == 0:
        return {"type": "boolean", "default": plain(action.default)}
    kind = _TYPES[action.type]  # type: ignore[index]
    one: dict[str, Any] = {"type": kind}
    if action.choices:
        one = {"enum": list(action.choices)}
    if action.nargs is not None:
        one = {"anyOf": [one, {"type": "array", "items": one, **_count(action.nargs)}]}
    return {**one, **_default(action)}


def _count(nargs: Any) -> dict[str, int]:
    return {"minItems": nargs, "maxItems": nargs} if isinstance(nargs, int) else {}


def _default(action: argparse.Action) -> dict[str, Any]:
    """The default, except that of a run's name, which contains the time, and infinity."""
    is_unsaid = action.dest.endswith("run_name") or action.default == math.inf
    return {} if is_unsaid else {"default": plain(action.default)}


def _section(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags as sections, by the part before their first dot."""
    properties: dict[str, Any] = {}
    below: dict[str, dict[str, Any]] = {}
    for name, each in flags.items():
        first, dot, rest = name.partition(".")
        if dot:
            below.setdefault(first, {})[rest] = each
        else:
            properties[name] = each
    properties |= {name: _section(inner) for name, inner in below.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}
