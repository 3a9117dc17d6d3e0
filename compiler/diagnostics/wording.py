"""How messages say values, lists of names, and what was probably meant."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tunec.schemas.caches import cached

_MOST: Final = 60
_MOVES: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What moves a terminal or turns its text, and JSON lets stand in a text as it is."""


def json_text(value: Any) -> str:
    """A value as indented JSON, in which no character moves the terminal that shows it."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return _MOVES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shortened(text: str, most: int = _MOST) -> str:
    """A text on one line, cut with an ellipsis where it is long, without unprintable characters."""
    line = " ".join(text[: 4 * most].split())
    line = line if line.isprintable() else "".join(map(_printable, line))
    return line if len(line) <= most else line[: most - 1] + "…"


def _printable(character: str) -> str:
    return character if character.isprintable() else "\ufffd"


def shown(value: Any) -> str:
    """A value as people see it in a file: `true`, `3`, `"text"`, `a list`, `a mapping`."""
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _number(value)
    return f"`{shortened(text)}`"


def _number(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def kind_of(value: Any) -> str:
    """What a value is, in words: `text`, `a whole number`, `a list`."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return shown(value)


def joined(names: Iterable[str], last: str = "or") -> str:
    """Names in a row: `a`, `a or b`, `a, b or c`."""
    every = list(names)
    if len(every) < 2:
        return "".join(every)
    return f"{', '.join(every[:-1])} {last} {every[-1]}"


def quoted(names: Iterable[str], last: str = "or") -> str:
    """Names in backticks in a row."""
    return joined((f"`{name}`" for name in names), last)


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that are most like a name, best first; none where all are far.

    Only names that are about as near as the nearest are given.
    """
    spelled = _spelling(shortened(name, 200)).strip()
    return list(_nearest(spelled, tuple(known), most))


_LIKE: Final = 0.6
"""The least likeness, as `difflib.get_close_matches` has it."""

_HEAD: Final = 3
"""Letters at the start: of names that are about as near, those that share them come first."""


@cached(1 << 15)
def _nearest(spelled: str, known: tuple[str, ...], most: int) -> tuple[str, ...]:
    from difflib import SequenceMatcher, get_close_matches

    spellings = _spellings(known)
    size, letters = len(spelled), _letters(spelled)
    able = [  # a letter that only one of two texts has matches nothing
        each
        for each, (_, own, long) in spellings.items()
        if 2 * (size - (letters & ~own).bit_count()) >= (least := _LIKE * (size + long))
        and 2 * (long - (own & ~letters).bit_count()) >= least
    ]
    found = get_close_matches(spelled, able, most, _LIKE)
    likeness = [SequenceMatcher(None, each, spelled).ratio() for each in found]
    near = [each for each, like in zip(found, likeness, strict=True) if like > likeness[0] - 0.1]
    near.sort(key=lambda each: each[:_HEAD] != spelled[:_HEAD])
    return tuple(spellings[each][0] for each in near)


@cached(256)
def _spellings(known: tuple[str, ...]) -> dict[str, tuple[str, int, int]]:
    """Each name by its spelling, with the letters that are in it, and its length."""
    return {(own := _spelling(each)): (each, _letters(own), len(own)) for each in known}


def _spelling(name: str) -> str:
    return name.lower().replace("-", "_")


def _letters(text: str) -> int:
    """The letters of a text as bits: of those beyond ASCII, some share one."""
    bits = 0
    for each in set(text):
        bits |= 1 << (ord(each) & 127)
    return bits


def nearly(name: str, known: Iterable[str], least: float) -> str | None:
    """The nearest known name, if the likeness of the two, from 0 to 1, is no less than that."""
    from difflib import SequenceMatcher

    near = next(iter(nearest(name, known)), None)
    is_near = near is not None and SequenceMatcher(None, name, near).ratio() >= least
    return near if is_near else None


def nearest_one(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like another; None where none is near."""
    return next(iter(nearest(name, known)), None)


def did_you_mean(names: Sequence[str]) -> str | None:
    """The question for a help line, or None where nothing is near."""
    return f"did you mean {quoted(names)}?" if names else None


def otherwise(slot: str) -> str:
    """How to get rid of a decided value; a slot that a field decides is changed there."""
    if slot.startswith("model."):
        return "choose another model (`tunec catalog models` lists them)"
    return f"pin {slot} to another value"
