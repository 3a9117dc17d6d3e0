"""Conditions on documents in a few words, for rules that are tables of them.

A condition is a key with a test of its value: `relora` (it is set to something), `rl=kto`,
`stage=1|2` (one of several), `stage!=sft`, `base_model~mpt` (the value holds the text),
`optimizer.type~=lamb` (so in any case), `context_parallel_size>1`, `save_total_limit<=0`,
`optimizer?` (it is written, whatever it says), `pipeline{}` (it is a block with keys).
`no max_steps` holds where the key is not written, `no use_cpu=true` where it does not say that.
`use_cpu|no_cuda=true` holds for either key. `(stage=3)`, in parentheses, gets no label.
Several are joined by ` & `; the first is where to look. A kind of document stands before the key
where it is not the document at hand: `deepspeed:zero_optimization.stage=3`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import ge, gt, le, lt
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.environment import split_requirement
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, keys
from tunec.schemas.caches import cached

_WORDS: Final = {"true": True, "false": False, "null": None}
_ORDERS: Final[Mapping[str, Callable[[Any, float], bool]]] = {">": gt, "<": lt, ">=": ge, "<=": le}
_SIGNS: Final = ("!=", ">=", "<=", "~=", "=", "~", ">", "<", "?", "{}")
_ABSENT: Final = "no "


class Condition(Struct, frozen=True):
    """One key, or several of which one must pass, with a test of its value."""

    kinds: tuple[str, ...]
    """The kinds of document that hold it; empty for the document at hand."""
    keys: tuple[str, ...]
    sign: str
    """One of `_SIGNS`, or empty: set to something."""
    wanted: tuple[str, ...] = ()
    is_negated: bool = False
    """Whether it holds if none of the keys passes the test."""
    is_shown: bool = True
    """Whether the place where it holds gets a label."""

    def holds(self, value: Any) -> bool:
        """Whether a written value passes the test."""
        match self.sign:
            case "?":
                return True
            case "{}":
                return isinstance(value, dict) and bool(value)
            case "=":
                return any(_equals(value, each) for each in self.wanted)
            case "!=":
                return value is not None and not any(_equals(value, each) for each in self.wanted)
            case "~=":
                return str(value).lower() in self.wanted
            case "~":
                return any(each in str(value or "").lower() for each in self.wanted)
            case "":
                return bool(value)
            case order:
                return is_number(value) and _ORDERS[order](value, float(self.wanted[0]))

    def place(self, document: Document) -> Place | None:
        """The first place in a document where it holds."""
        return next(self.places(document), None)

    def places(self, document: Document) -> Iterator[Place]:
        """The places in a document where it holds."""
        for key in () if self.is_negated else self.keys:
            at = document.get(key)
            if at is not None and self.holds(at.value):
                yield at

    def is_absent(self, document: Document) -> bool:
        """Whether none of its keys passes the test, as far as the file shows without being run."""
        return not any(self._may_hold(document, key) for key in self.keys)

    def _may_hold(self, document: Document, key: str) -> bool:
        at = document.get(key)
        return key in document.unknown or (at is not None and self.holds(at.value))


@cached()
def parse(condition: str) -> tuple[Condition, ...]:
    """The parts of a condition."""
    return tuple(_parsed(part.strip()) for part in condition.split("&"))


def _parsed(part: str) -> Condition:
    is_shown, part = not part.startswith("("), part.strip("()")
    is_negated, rest = part.startswith(_ABSENT), part.removeprefix(_ABSENT)
    at = min((i for i, letter in enumerate(rest) if letter in "!=<>~?{"), default=len(rest))
    sign = next((each for each in _SIGNS if rest.startswith(each, at)), "")
    wanted = tuple(rest[at + len(sign) :].strip().split("|")) if sign else ()
    kinds, _, keys = rest[:at].strip().rpartition(":")
    named = tuple(kinds.split("|")) if kinds else ()
    if is_negated and not sign:
        sign = "?"
    return Condition(named, tuple(keys.strip().split("|")), sign, wanted, is_negated, is_shown)


def _equals(value: Any, wanted: str) -> bool:
    return value is _WORDS[wanted] if wanted in _WORDS else str(value) == wanted


class Pair(Struct, frozen=True):
    """Two conditions that a reader refuses together."""

    condition: str
    other: str
    why: str = ""
    since: str = ""
    """The releases that check it (`axolotl>=0.19`); empty if all do."""


class Need(Struct, frozen=True):
    """A condition that a reader accepts only if one of others holds."""

    condition: str
    others: tuple[str, ...]
    why: str = ""
    since: str = ""


def pairs(since: str, *rows: tuple[str, str, str]) -> tuple[Pair, ...]:
    """Pairs that the same releases check, each as its two conditions and why."""
    return tuple(Pair(*row, since) for row in rows)


def needs(since: str, *rows: tuple[str, tuple[str, ...], str]) -> tuple[Need, ...]:
    """Needs that the same releases check, each as its condition, the others and why."""
    return tuple(Need(*row, since) for row in rows)


def where(document: Document, condition: str) -> Place | None:
    """The place of the first part of a condition that holds; None if none does."""
    found = None
    for part in parse(condition):
        at = part.place(document)
        if at is None and not (part.is_negated and part.is_absent(document)):
            return None
        found = found or at
    return found


def first_keys(kinds: str, asked: Iterable["str | Pair | Need"]) -> tuple[str, ...]:
    """The keys that conditions, pairs or needs look at first, for the `reads` of a rule."""
    said = (each if isinstance(each, str) else each.condition for each in asked)
    return keys(kinds, *dict.fromkeys(key for each in said for key in parse(each)[0].keys))


def key_of(condition: str) -> str:
    """The key of a condition's first part."""
    return parse(condition)[0].keys[0]


def is_unknown(document: Document, condition: str) -> bool:
    """Whether a key of the condition has a value that is only known by running the file."""
    return any(key in document.unknown for part in parse(condition) for key in part.keys)


def entries(document: Document, key: str) -> Iterator[Mapping[str, Place]]:
    """The mappings in a list, each as the places of its keys by name (`datasets[0].type`)."""
    at = document.get(key)
    for number, node in enumerate((at.node.items if at is not None else None) or ()):
        yield {
            name: Place(document, f"{key}[{number}].{name}", child)
            for name, child in (node.fields or {}).items()
        }


def items(document: Document, key: str) -> Iterator[tuple[str, Place]]:
    """The keys of each mapping in a list, each with its place."""
    for each in entries(document, key):
        yield from each.items()


def is_checked(run: LintContext, since: str) -> bool:
    """Whether the release that runs has a check, if that is known."""
    return not since or run.runs(since) is not False


def severity(run: LintContext, since: str) -> Severity | None:
    """The rule's own severity if a release is given; otherwise a warning.

    A note if a list has a lower bound alone, with which the newest is installed, and only earlier
    releases have the fault.
    """
    if not since or run.runs(since) is not None:
        return None
    is_over = not any(sign in since for sign in (">", "==", "~="))
    return "note" if is_over and run.release(split_requirement(since)[0]).is_known else "warning"


def notes(run: LintContext, why: str, since: str) -> tuple[str, ...]:
    """The reason, and the first release that checks it if none is given."""
    late = _releases(since) if severity(run, since) else ""
    return tuple(each for each in (why, late) if each)


def _releases(since: str) -> str:
    """Releases in words: `axolotl>=0.19` is 0.19 and later, `axolotl>=0.11,<0.16` stays a range."""
    if "<" in since:
        return f"checked by {since.replace(',', ' and ')}"
    return f"checked by {since.replace('>=', ' ')} and later"


def check_pair(run: LintContext, document: Document, pair: Pair) -> Iterator[Finding]:
    """The finding if both conditions of a pair hold."""
    at, beside = where(document, pair.condition), where(document, pair.other)
    if at is not None and beside is not None and is_checked(run, pair.since):
        yield refused_beside(run, at, beside, (pair.why, pair.since))


def refused_beside(run: LintContext, at: Place, beside: Place, pair: tuple[str, str]) -> Finding:
    """The finding at a place that conflicts with another: the reason, and since when."""
    return Finding(
        f"{_words(at)} cannot be combined with {_words(beside)}",
        (at.label("refused"), *([beside.label("", primary=False)] if beside != at else [])),
        notes(run, *pair),
        "keep one of them",
        severity=severity(run, pair[1]),
    )


def one_of_two(at: Place, beside: Place, why: str) -> Finding:
    """A finding at a key that conflicts with another, whatever their values."""
    return Finding(
        f"{at.path} cannot stand beside {beside.path}",
        (at.label("refused"), beside.label("", primary=False)),
        (why,),
        "remove one of the two",
    )


def lacking(run: LintContext, document: Document, need: Need) -> tuple[Place, Place | None] | None:
    """Where a need is not met: the place of its condition, and what is written instead."""
    at = where(document, need.condition)
    if at is None or not is_checked(run, need.since):
        return None
    for other in need.others:
        if where(document, other) is not None or is_unknown(document, other):
            return None
    written = (document.get(key_of(other)) for other in need.others)
    return at, next((each for each in written if each is not None and each != at), None)


def check_need(run: LintContext, document: Document, need: Need) -> Iterator[Finding]:
    """The finding if a need is not met."""
    found = lacking(run, document, need)
    if found is None:
        return
    at, beside = found
    wanted = in_words(need.others[0])
    every = " or ".join(in_words(each) for each in need.others[:2])
    yield Finding(
        f"{_words(at)} requires {every}",
        (at.label("refused"), *also(beside)),
        notes(run, need.why, need.since),
        f"write {wanted}, or remove {at.path}",
        severity=severity(run, need.since),
    )


def in_words(condition: str) -> str:
    """A condition as people would write it: `rl: dpo`."""
    return (
        condition.partition(" &")[0]
        .replace("!=", " other than ")
        .replace("=", ": ")
        .replace("~", ": ")
        .replace(">", " above ")
    )


def _words(at: Place) -> str:
    """The key, with its value if that is a word or a switch that is off."""
    value = at.value
    if value is False:
        return f"{at.path}: false"
    is_word = isinstance(value, str) and len(value) < 40
    return f"{at.path} {value}" if is_word else at.path
