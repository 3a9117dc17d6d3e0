"""The types and levels of a data file's keys, as voluptuous validates them before training."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, nearly
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.rule import Finding

_TYPES: Final = {
    "bool": (bool,),
    "int": (int,),
    "str": (str,),
    "float": (float,),
    "number": (int, float),
}
_WANTED: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "str": "a text",
    "float": "a number with a point",
    "number": "a number",
    "two": "two numbers with a point",
    "sides": "a whole number, or two",
    "ints": "a list of whole numbers",
    "interpolation": "a word that says how pictures are resized",
}
_INTERPOLATIONS: Final = (
    *("lanczos", "nearest", "bilinear", "linear", "bicubic", "cubic", "area", "box"),
)
"""kohya-ss/sd-scripts 0.10.1 library/utils.py `validate_interpolation_fn`."""
_REFUSED: Final = "voluptuous.MultipleInvalid: extra keys not allowed"


class DataSchema(Struct, frozen=True):
    """The keys of each level with their types, and how a level is named."""

    keys: Mapping[str, Mapping[str, str]]
    places: Mapping[str, str]

    def check(self, level: str, key: str, place: Place) -> Iterator[Finding]:
        """Report a key that the level does not have, or a value of the wrong type."""
        known = self.keys.get(level, {})
        if key not in known:
            yield self._unknown(level, key, place, known)
        elif not _fits(known[key], place.value):
            yield Finding(
                f"{key} has to be {_WANTED[known[key]]}",
                (place.label("refused"),),
                (f"voluptuous.MultipleInvalid: expected {known[key]}",),
                f"write {_WANTED[known[key]]}",
            )

    def _unknown(self, level: str, key: str, place: Place, known: Mapping[str, str]) -> Finding:
        others = [each for each in self.places if each != level and key in self.keys.get(each, {})]
        near = nearest(key, frozenset(known))[:1]
        is_meant = not others and nearly(key, frozenset(known), 0.88) is not None
        where = self.places.get(level, "the top")
        move = f"move it to {self.places[others[0]]}" if others else "remove it"
        return Finding(
            f"{where} has no key {key}",
            (place.key_label("refused"),),
            (_REFUSED,),
            f"did you mean {near[0]}?" if is_meant else move,
            Fix((place.renamed(near[0]),), "unsafe") if is_meant else None,
        )


def _fits(kind: str, value: Any) -> bool:
    if kind == "any":
        return True
    if kind == "interpolation":
        return value in _INTERPOLATIONS
    if kind == "ints":
        return isinstance(value, list) and all(isinstance(each, int) for each in value)
    if kind == "two":
        return isinstance(value, list) and [type(each) for each in value] == [float, float]
    if kind == "sides":
        each = value if isinstance(value, list) else [value]
        return len(each) in (1, 2) and all(isinstance(side, int) for side in each)
    return isinstance(value, _TYPES[kind])


_FORMATS: Final = (".toml", ".json")


def unread_format(place: Place) -> Iterator[Finding]:
    """The file of the data has an unknown suffix (library/config_util.py `load_user_config`)."""
    name = place.value
    if isinstance(name, str) and "$" not in name and PurePath(name).suffix.lower() not in _FORMATS:
        yield Finding(
            f"the data's own file {name} is neither TOML nor JSON by its name",
            (place.label("refused"),),
            ("ValueError: not supported config file format",),
            "give it a name that ends in .toml",
        )
