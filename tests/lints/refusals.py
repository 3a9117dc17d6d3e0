"""The cases of `data/refusals/`: what a program refuses or passes over, beside a sound file.

Each file there is one program's: `base` is a file that it takes, and a case is what `set` changes
in it (null takes a key out; those of `nulls` are written as null; `files` are beside
it, and `mended_files` beside its mended form). `rule` has to find it `at` a
key; with `mended` in the place of `set` nothing of that rule is found, and no error at all.
`says`: words with which the program refuses it; without, it is taken, and the run continues, but
not as intended. `unasked`: why the program is not asked. `others`: the file is a list of this one
and these. `command`: the file is a script of it, with what would else be the file as its flags.
What is refused is an error, what is passed over a warning, unless `severity` says otherwise.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.lints.corpus import held, text_of
from tests.lints.lint_pages import Example

_NULL: Final = object()
_FOLDER = Path(__file__).parent / "data" / "refusals"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One case, with the program that it is a file of."""

    id: str
    program: str
    version: str
    rule: str
    at: str
    bad: Example
    mended: Example
    says: str
    severity: str
    is_asked: bool


@cache
def refusals() -> tuple[Refusal, ...]:
    """Every case of every file, in order."""
    files = sorted(_FOLDER.glob("*.yaml"))
    return tuple(
        _case(f"{path.stem}-{number}", data, case)
        for path, data in ((each, held(f"refusals/{each.name}")) for each in files)
        for number, case in enumerate(data["cases"])
    )


def _case(name: str, data: Mapping[str, Any], case: Mapping[str, Any]) -> Refusal:
    return Refusal(
        name,
        data["program"],
        data["version"],
        case["rule"],
        case["at"],
        _example(data, case, {**case["set"], **dict.fromkeys(case.get("nulls", ()), _NULL)}),
        _example(data, case, case["mended"]),
        case.get("says", ""),
        case.get("severity", "error" if case.get("says") else "warning"),
        "unasked" not in case,
    )


def _example(
    data: Mapping[str, Any], case: Mapping[str, Any], change: Mapping[str, Any]
) -> Example:
    every = {**data["base"], **change}
    held = {key: value for key, value in every.items() if value is not None}
    held = {key: None if value is _NULL else value for key, value in held.items()}
    said: Any = [held, *data["others"]] if "others" in data else held
    command = case.get("command", data.get("command"))
    said = nested(held) if data.get("nested") and command is None else said
    files = {
        data["file"]: said
        if command is None
        else _command(command, held, is_hydras=data.get("nested", False))
    }
    shared = {name: each for name, each in data.get("files", {}).items() if name in str(held)}
    is_mended = change is case["mended"] and "mended_files" in case
    own = case["mended_files"] if is_mended else case.get("files", {})
    texts = {name: text_of(name, each) for name, each in {**files, **shared, **own}.items()}
    arguments = (data["file"], *own, *data.get("arguments", ()), *case.get("arguments", ()))
    return Example("", is_bad=True, files=texts, arguments=arguments)


def nested(held: Mapping[str, Any]) -> dict[str, Any]:
    """The keys in the blocks that their dots name."""
    whole: dict[str, Any] = {}
    for key, value in held.items():
        *blocks, last = key.split(".")
        inner = whole
        for block in blocks:
            inner = inner.setdefault(block, {})
        inner[last] = value
    return whole


def _command(start: str, flags: Mapping[str, Any], *, is_hydras: bool) -> str:
    if is_hydras:
        words = [f"{key}={json.dumps(value).strip(chr(34))}" for key, value in flags.items()]
        return " \\\n  ".join([start, *words]) + "\n"
    words = [
        f"--{key}" if value is True else f"--{key} {value}"
        for key, value in flags.items()
        if value is not False
    ]
    return " \\\n  ".join([start, *words]) + "\n"
