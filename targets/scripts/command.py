"""A launch script whose command contains the trainer's flags: text and data, in both directions.

As data it is a launch script of `targets/launch`, with `script` cut at the first flag and the flags
by name under `flags`.
"""

import ast
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.target import Entry, Json, named
from tunec.schemas.dotted_paths import nested
from tunec.targets.launch.script import parse as parse_launch
from tunec.targets.launch.script import render as render_launch
from tunec.targets.launch.target import LAUNCH_SH
from tunec.targets.words import typed

FLAGS: Final = "flags"
_PASSED_ON: Final = ' "$@"\n'
_LEAST: Final[Mapping[str, Json]] = {
    "environment": {},
    "launcher": "python",
    "nodes": 1,
    "per_node": 1,
    "script": [],
}
"""Values for a plan that could not be expressed: the text can then be read, but not run."""


def starting(*launchers: str) -> tuple[Entry, ...]:
    """The rows of launch.sh for these launchers, without that of the script."""
    words = {name: name for name in launchers}
    launcher = named("launcher", "launch.launcher", words, "bash 5 manual, section 3.7.4")
    said = (("launch.script",), ("launch.launcher",))
    return (*(each for each in LAUNCH_SH.entries if each.slots not in said), launcher)


class Style(Struct, frozen=True):
    """How a program writes its flags."""

    text: frozenset[str] = frozenset()
    """Flags whose value is always a text."""
    switches: bool = False
    """Whether a true flag has no value, and a false one is left out."""
    spreads: bool = False
    """Whether a list is written as several words; otherwise as one word in Python's syntax."""
    words: Callable[[Json], str] = str
    """A value as a word."""
    known_as: Callable[[str], str] = str
    """The name under which a flag is stored, from the one on a command line."""
    makes: str = ""
    """The flag with the directory that the script creates, since the program expects it to
    exist."""


# ── data to text ─────────────────────────────────────────────────────────────────────────────────


def renderer(style: Style) -> Callable[[Mapping[str, Json], Sequence[str]], str]:
    """The `render` function of a file whose command line has flags."""

    def render(values: Mapping[str, Json], header: Sequence[str]) -> str:
        text = render_launch({**_LEAST, **values}, header).removesuffix(_PASSED_ON)
        text = _with_folder(text, values.get(FLAGS, {}).get(style.makes))
        lines = [" ".join(map(shlex.quote, each)) for each in _spelled(values, style)]
        return " \\\n  ".join([text, *lines]) + _PASSED_ON

    return render


def commander(style: Style) -> Callable[[Mapping[str, Json]], tuple[str, ...]]:
    """The program and its flags in such a file, for others that start it."""

    def command(values: Mapping[str, Json]) -> tuple[str, ...]:
        flags = (word for line in _spelled(values, style) for word in line)
        return (*map(str, values["script"]), *flags)

    return command


def _with_folder(text: str, folder: Json) -> str:
    """A script that creates a directory before its last command."""
    if not isinstance(folder, str):
        return text
    before, _, command = text.rpartition("exec ")
    return f"{before}mkdir -p -- {shlex.quote(folder)}\nexec {command}"


def _spelled(values: Mapping[str, Json], style: Style) -> Iterator[list[str]]:
    for name, value in flatten(values.get(FLAGS, {})).items():
        if style.switches and isinstance(value, bool):
            if value:
                yield [f"--{name}"]
        elif style.spreads and isinstance(value, list):
            yield [f"--{name}", *map(style.words, value)]
        else:
            yield [f"--{name}", style.words(value)]


def flatten(flags: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Flags by their full names: `{"a": {"b": 1}}` is `{"a.b": 1}`."""
    flat: dict[str, Json] = {}
    for key, value in flags.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


# ── text to data ─────────────────────────────────────────────────────────────────────────────────


def parser(style: Style) -> Callable[[str], Json]:
    """The `parse` function of a file with flags; it raises ValueError for an unclosed quote."""

    def parse(text: str) -> Json:
        document: dict[str, Any] = parse_launch(text)
        words: list[str] = document.get("script", [])
        start = _first_flag(words)
        flags = dict(_paired(words[start:], style))
        return {**document, "script": words[:start], **({FLAGS: nested(flags)} if flags else {})}

    return parse


def before_flags(words: Sequence[str]) -> Sequence[str]:
    """The words of a command up to its first flag."""
    return words[: _first_flag(words)]


def _first_flag(words: Sequence[str]) -> int:
    return next((at for at, word in enumerate(words) if word.startswith("--")), len(words))


def _paired(words: Sequence[str], style: Style) -> Iterator[tuple[str, Json]]:
    """`--name`, `--name value`, `--name=value` and `--name one two`, paired as by argparse."""
    at = 0
    while at < len(words):
        name, given, value = words[at].removeprefix("--").partition("=")
        end = at + 1 + _first_flag(words[at + 1 :])
        following = [value] if given else list(words[at + 1 : end])
        name = style.known_as(name)
        yield name, _value(name, following, style)
        at = end


def _value(name: str, words: Sequence[str], style: Style) -> Json:
    if not words:
        return True
    if len(words) == 1 and words[0].startswith("[") and not style.spreads:
        return _listed(words[0])
    values = [word if name in style.text else typed(word) for word in words]
    return values if len(values) > 1 else values[0]


def _listed(word: str) -> Json:
    """A list in Python's or JSON's syntax; any other word with a bracket is a text."""
    try:
        found = ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word
    return found if isinstance(found, list) else word
