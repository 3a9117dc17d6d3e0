"""The catalogue of models: which card describes what a name stands for, and where that lies.

A name stands for weights; a card describes modules, and holds for all weights of them. Only the
file that is asked for is read. `names.json` says which card describes a repository, and which
repository a short name stands for; it is generated (`index_text`) and a test proves it fresh.
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
"""The generated file, beside this module, by names in lower case: the stem of the card's file of a
repository, and the repository of a name without organisation."""


class UnknownName(KeyError):
    """A name that no card has."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(name)

    def __str__(self) -> str:
        return f"no model is called {self.name!r}"


def card(name: str) -> ModelCard:
    """Find what is known of a model by name, repository or alias, in any case of letters.

    The config is that of the named weights, also where they are not the card's own.
    Raises `UnknownName` with the names of all cards.
    """
    weights = repository(name).lower()
    stem = _index().get(weights)
    if stem is None:
        raise UnknownName(name, card_names())
    return _of_weights(stem, weights)


def repository(name: str) -> str:
    """Where the weights lie that a name stands for: one with an organisation says so itself.

    Raises `UnknownName` for a short name that no card has.
    """
    if "/" in name:
        return name
    found = _index().get(name.lower())
    if found is None:
        raise UnknownName(name, card_names())
    return found


def original(name: str) -> str:
    """The repository whose weights a name stands for: of a copy, that of which it is one.

    What the catalogue does not know stands for itself.
    """
    try:
        known, path = card(name), repository(name)
    except UnknownName:
        return name
    own = {each.lower() for each in (known.repo, *known.aliases)}
    return known.repo if path.lower() in own else path


def card_names() -> tuple[str, ...]:
    """Names of all cards, sorted."""
    return tuple(sorted({stem for name, stem in _index().items() if "/" in name}))


def index_text() -> str:
    """Compute what `names.json` has to be, from the cards themselves.

    Raises ValueError where two cards claim one name, or a card's name is not its file's.
    """
    owners: dict[str, str] = {}
    full: dict[str, dict[str, str]] = {}
    for stem in _stems():
        for name, weights in _claims(stem):
            if owners.setdefault(name.lower(), stem) != stem:
                raise ValueError(f"{name!r} is claimed by {owners[name.lower()]} and {stem}")
            full.setdefault(name.rpartition("/")[2].lower(), {}).setdefault(stem, weights)
    index = {name: stem for name, stem in owners.items() if "/" in name}
    for short, found in full.items():
        stem = owners.get(short) or (next(iter(found)) if len(found) == 1 else "")
        if stem:
            index[short] = found[stem]
    return json.dumps(dict(sorted(index.items())), indent=0) + "\n"


def _claims(stem: str) -> Iterator[tuple[str, str]]:
    """The names of a card, each with the repository that it stands for."""
    found = _read(stem)
    if found.name != stem:
        raise ValueError(f"{stem}.yaml holds the card of {found.name!r}")
    yield from ((name, found.repo) for name in (found.name, found.repo))
    yield from ((name, name if "/" in name else found.repo) for name in found.aliases)
    yield from ((name, name) for name in found.siblings)


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


@lru_cache(maxsize=256)
def _of_weights(stem: str, weights: str) -> ModelCard:
    """A card with the config and the dtype of these weights, a repository in lower case."""
    found = _read(stem)
    named = (each for name, each in found.siblings.items() if name.lower() == weights)
    own = next(named, None)
    if own is None or not (own.config or own.stored_dtype):
        return found
    stored = own.stored_dtype or found.stored_dtype
    update = {"config": {**found.config, **own.config}, "stored_dtype": stored}
    return found.model_copy(update=update)
