"""The catalogue of models: the card that describes a name's modules, and where its weights are.

A name stands for weights; a card describes modules, and holds for all weights of them. If a card is
named like the name, or like the last part of a repository, only its file is read; for any other
name, the heads of the other files are read too.
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
    """Find the card of a model by name, repository or alias; case does not matter.

    The config is that of the named weights, even if they are not the card's own. Raises
    `UnknownName` with the names of all cards.
    """
    own = name.lower()
    if own in card_names():
        return _of_weights(own, _read(own).repo.lower())
    weights = repository(name).lower()
    owner = _owner(weights)
    if owner is None and (copied := _copied(weights)) is not None:
        weights, owner = copied, _owner(copied)
    if owner is None:
        raise UnknownName(name, card_names())
    return _of_weights(owner, weights)


def repository(name: str) -> str:
    """The repository of the weights that a name stands for; a name with an organisation is one.

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
    """The repository whose weights another one holds in packed form; None: it is unknown."""
    from tunec.schemas.models.refusals import unpacked

    left = unpacked(name).removesuffix("-unsloth")
    for each in (left, left.rpartition("/")[2]):
        try:
            card(each)
        except UnknownName:
            continue
        return repository(each) if "/" not in each else _spelled(each)
    return None


def repository_in_loaded_form(name: str) -> str | None:
    """The known repository with the weights of one that only its makers' code loads."""
    from tunec.schemas.models.published_form import in_loaded_form

    meant = (each.lower() for each in in_loaded_form(name))
    return next((_spelled(each) for each in meant if _owner(each) is not None), None)


def _spelled(weights: str) -> str:
    """A repository in lower case, spelled as in its card; or what it copies."""
    own = weights if _owner(weights) is not None else _copied(weights)
    return next(each for each in _weights_of(card(weights)) if each.lower() == own)


def original(name: str) -> str:
    """The repository of a name's weights; for a copy, the repository that it copies.

    A name that the catalogue does not have stands for itself.
    """
    try:
        known, path = card(name), repository(name)
    except UnknownName:
        return name
    own = {each.lower() for each in (known.repo, *known.aliases)}
    return known.repo if path.lower() in own else path


def denoiser_cards(family: str, pipeline: str = "") -> Iterator[ModelCard]:
    """The cards whose denoiser is of a diffusers class, in the order of their names.

    Models that need reference images have the denoisers of other models: they are those that the
    class of the whole `pipeline` names, and are left out otherwise.
    """
    known = [
        _read(name)
        for name, head in heads(_CARDS, ("config",), family.lower()).items()
        if head.get("config", {}).get("_class_name") == family
    ]
    named = [each for each in known if each.edits and pipeline == each.edits.pipeline != ""]
    yield from named or (each for each in known if each.edits is None or not each.edits.least)


def card_names() -> tuple[str, ...]:
    """Names of all cards, sorted."""
    return names_in(_CARDS)


def _owner(weights: str) -> str | None:
    """The card of a repository in lower case."""
    short = weights.rpartition("/")[2]
    if short in card_names() and weights in map(str.lower, _weights_of(_read(short))):
        return short
    return _owners(weights).get(weights)


_COPIES: Final = "unsloth/"
"""The organisation that copies repositories under their own names: 137 of its repositories have
the class and the count of the one whose name they bear, and where a count differs it is that of
heads and draft layers that are stored or not (llmfit 1.1.17, embedded hf_models.json)."""
_CHANGED: Final = ("phi-", "smollm2-")
"""What names of its copies begin with that are in Llama's or Mistral's form, or have one token more
(the same file: unsloth/Phi-3.5-mini-instruct, unsloth/SmolLM2-1.7B-Instruct)."""


def _copied(weights: str) -> str | None:
    """The known repository that a copy has the weights of, both in lower case."""
    short = weights.removeprefix(_COPIES)
    if short == weights or short.startswith(_CHANGED):
        return None
    meant: dict[str, str] = {}
    for _, name, owner, _ in _claims(short):
        organisation, _, last = name.lower().partition("/")
        if last == short and f"{organisation}/" != _COPIES:
            meant.setdefault(owner, name.lower())
    found = _only(meant)
    return None if found is None else meant[found]


def _weights_of(found: ModelCard) -> tuple[str, ...]:
    return (found.repo, *found.aliases, *found.siblings)


@cached(256)
def _owners(word: str = "") -> Mapping[str, str]:
    """The card of every name that a card claims, in lower case.

    With a word, only of cards that may claim it. Raises BrokenEntry if two cards claim one name.
    """
    owners: dict[str, str] = {}
    for key, each, owner, _ in _claims(word):
        if owners.setdefault(each.lower(), owner) != owner:
            reason = f"`{each}` is claimed by {owners[each.lower()]} already"
            raise BrokenEntry(_CARDS / f"{owner}.yaml", reason, (key,))
    return owners


@cached(256)
def _short_names(word: str = "") -> Mapping[str, str]:
    """The repository of a name without organisation, if only one card can be meant."""
    meant: dict[str, dict[str, str]] = {}
    for _, name, owner, weights in _claims(word):
        meant.setdefault(name.rpartition("/")[2].lower(), {}).setdefault(owner, weights)
    owned = {short: _owners(word).get(short) or _only(found) for short, found in meant.items()}
    return {short: meant[short][owner] for short, owner in owned.items() if owner}


def _only(found: Mapping[str, str]) -> str | None:
    return next(iter(found)) if len(found) == 1 else None


def _claims(word: str = "") -> Iterator[tuple[str, str, str, str]]:
    """The names of every card, each as: key, name, the card's name, and the repository."""
    for own, head in heads(_CARDS, ("repo", "aliases", "siblings"), word).items():
        repo = str(head.get("repo", own))
        yield from (("name", own, own, repo), ("repo", repo, own, repo))
        for name in listed(head, "aliases"):
            yield "aliases", name, own, name if "/" in name else repo
        yield from (("siblings", name, own, name) for name in listed(head, "siblings"))


@cached()
def _read(name: str) -> ModelCard:
    return read_entry(_CARDS, name, ModelCard)


@cached()
def _of_weights(owner: str, weights: str) -> ModelCard:
    """A card with what is these weights' own, a repository in lower case."""
    found = _read(owner)
    named = (each for name, each in found.siblings.items() if name.lower() == weights)
    own = next(named, None)
    if own is None:
        return found
    differing = {"stored_dtype": own.stored_dtype, "reads_images": own.reads_images}
    update: dict[str, Any] = {key: value for key, value in differing.items() if value}
    if own.config:
        update["config"] = {**found.config, **own.config}
    if not update:
        return found
    return found.model_copy(update=update)
