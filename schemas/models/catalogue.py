"""The catalogue of models: a card by its name, its repository or one of its aliases.

Only the file that is asked for is read. `names.json` says which file holds which name; it is
generated (`index_text`) and a test proves it fresh.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from tunec.schemas.models.card import ModelCard

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HERE: Final = Path(__file__).parent
INDEX: Final = "names.json"
"""The generated file, beside this module: lower-case name to the stem of the card's file."""


class UnknownName(KeyError):
    """A name that no card has."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(name)

    def __str__(self) -> str:
        return f"no model is called {self.name!r}"


def card(name: str) -> ModelCard:
    """Find the card of a model by name, repository or alias, in any case of letters.

    Raises `UnknownName` with the names of all cards.
    """
    stem = _index().get(name.lower())
    if stem is None:
        raise UnknownName(name, card_names())
    return _read(stem)


def card_names() -> tuple[str, ...]:
    """Names of all cards, sorted."""
    return tuple(sorted(set(_index().values())))


def index_text() -> str:
    """Compute what `names.json` has to be, from the cards themselves.

    Raises ValueError where two cards claim one name, or a card's name is not its file's.
    """
    owners: dict[str, str] = {}
    short: dict[str, set[str]] = {}
    for stem in _stems():
        for alias in _claims(stem):
            other = owners.setdefault(alias.lower(), stem)
            if other != stem:
                raise ValueError(f"{alias!r} is claimed by {other} and {stem}")
            short.setdefault(alias.rpartition("/")[2].lower(), set()).add(stem)
    for alias, stems in short.items():
        if len(stems) == 1:
            owners.setdefault(alias, *stems)
    return json.dumps(dict(sorted(owners.items())), indent=0) + "\n"


def _claims(stem: str) -> Sequence[str]:
    found = _read(stem)
    if found.name != stem:
        raise ValueError(f"{stem}.yaml holds the card of {found.name!r}")
    return found.name, found.repo, *found.aliases


def _stems() -> Iterator[str]:
    for file in sorted((_HERE / "cards").iterdir()):
        if file.name.endswith(".yaml"):
            yield file.name.removesuffix(".yaml")


@lru_cache(maxsize=1)
def _index() -> Mapping[str, str]:
    index: dict[str, str] = json.loads((_HERE / INDEX).read_text("utf-8"))
    return index


@lru_cache(maxsize=256)
def _read(stem: str) -> ModelCard:
    text = (_HERE / "cards" / f"{stem}.yaml").read_text("utf-8")
    data: dict[str, Any] = yaml.load(text, Loader=_LOADER)  # noqa: S506  a safe loader
    return ModelCard.model_validate(data, strict=False)
