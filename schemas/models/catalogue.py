"""The catalogue of models: which card describes what a name stands for, and where that lies.

A name stands for weights; a card describes modules, and holds for all weights of them. A card that
is called as the name, or as the last part of a repository, is the only file that is read; for any
other name, so are the heads of the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tunec.schemas.caches import cached
from tunec.schemas.entries import BrokenEntry, heads, listed, names_in, read_entry
from tunec.schemas.models.card import ModelCard

_CARDS: Final = Path(__file__).parent / "cards"


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
    owner = _owner(weights)
    if owner is None:
        raise UnknownName(name, card_names())
    return _of_weights(owner, weights)


def repository(name: str) -> str:
    """Where the weights lie that a name stands for: one with an organisation says so itself.

    Raises `UnknownName` for a short name that no card has.
    """
    if "/" in name:
        return name
    if name.lower() in card_names():
        return _read(name.lower()).repo
    found = _short_names(name.lower()).get(name.lower())
    if found is None:
        raise UnknownName(name, card_names())
    return found


def repository_unpacked(name: str) -> str | None:
    """The repository whose weights one holds packed, by its name; None: it is not known."""
    from tunec.schemas.models.refusals import unpacked

    left = unpacked(name).removesuffix("-unsloth")
    for each in (left, left.rpartition("/")[2]):
        try:
            card(each)
        except UnknownName:
            continue
        return repository(each) if "/" not in each else _spelled(each)
    return None


def _spelled(weights: str) -> str:
    """A repository in lower case as its card writes it."""
    known = card(weights)
    return next(each for each in _weights_of(known) if each.lower() == weights)


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
    return names_in(_CARDS)


def _owner(weights: str) -> str | None:
    """The card of a repository in lower case."""
    short = weights.rpartition("/")[2]
    if short in card_names() and weights in map(str.lower, _weights_of(_read(short))):
        return short
    return _owners(weights).get(weights)


def _weights_of(found: ModelCard) -> tuple[str, ...]:
    return (found.repo, *found.aliases, *found.siblings)


@cached(256)
def _owners(word: str = "") -> Mapping[str, str]:
    """The card of every name that one claims, in lower case.

    With a word, of the cards alone that may claim it. Raises BrokenEntry where two claim one name.
    """
    owners: dict[str, str] = {}
    for key, each, owner, _ in _claims(word):
        if owners.setdefault(each.lower(), owner) != owner:
            reason = f"`{each}` is claimed by {owners[each.lower()]} already"
            raise BrokenEntry(_CARDS / f"{owner}.yaml", reason, (key,))
    return owners


@cached(256)
def _short_names(word: str = "") -> Mapping[str, str]:
    """The repository of a name without organisation, where one card alone can be meant by it."""
    meant: dict[str, dict[str, str]] = {}
    for _, name, owner, weights in _claims(word):
        meant.setdefault(name.rpartition("/")[2].lower(), {}).setdefault(owner, weights)
    owned = {short: _owners(word).get(short) or _only(found) for short, found in meant.items()}
    return {short: meant[short][owner] for short, owner in owned.items() if owner}


def _only(found: Mapping[str, str]) -> str | None:
    return next(iter(found)) if len(found) == 1 else None


def _claims(word: str = "") -> Iterator[tuple[str, str, str, str]]:
    """The names of every card: key, name, the card's own, and the repository that it stands for."""
    for own, head in heads(_CARDS, ("repo", "aliases", "siblings"), word).items():
        repo = str(head.get("repo", own))
        yield from (("name", own, own, repo), ("repo", repo, own, repo))
        for name in listed(head, "aliases"):
            yield "aliases", name, own, name if "/" in name else repo
        yield from (("siblings", name, own, name) for name in listed(head, "siblings"))


@cached(256)
def _read(name: str) -> ModelCard:
    return read_entry(_CARDS, name, ModelCard)


@cached(256)
def _of_weights(owner: str, weights: str) -> ModelCard:
    """A card with the config and the dtype of these weights, a repository in lower case."""
    found = _read(owner)
    named = (each for name, each in found.siblings.items() if name.lower() == weights)
    own = next(named, None)
    if own is None or not (own.config or own.stored_dtype):
        return found
    update: dict[str, Any] = {"config": {**found.config, **own.config}}
    if own.stored_dtype:
        update["stored_dtype"] = own.stored_dtype
    return found.model_copy(update=update)
