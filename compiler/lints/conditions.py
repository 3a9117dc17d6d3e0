"""Conditions on a document in a few words, for rules that are tables of them.

A condition is a key that is set to something (`relora`), a key of one value (`rl=kto`), of another
value (`stage!=sft`), of a value that holds some text (`base_model~mpt`), of a number above one
(`context_parallel_size>1`), or several of these (`optimizer=muon & fsdp_config`), of which the
first is where to look. A key that is not written fulfils none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.counts import is_number
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding

_WORDS: Final = {"true": True, "false": False}
_SIGNS: Final = ("!=", "=", "~", ">")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two conditions that a reader does not take together."""

    condition: str
    other: str
    why: str = ""
    since: str = ""
    """The releases that check it (`axolotl>=0.19`); empty where every one does."""


@dataclass(frozen=True, slots=True)
class Need:
    """A condition that a reader takes only where one of others holds."""

    condition: str
    others: tuple[str, ...]
    why: str = ""
    since: str = ""


def where(document: Document, condition: str) -> Place | None:
    """The place of the first part of a condition that holds; None where it does not."""
    places = [_where(document, part.strip()) for part in condition.split("&")]
    return places[0] if all(each is not None for each in places) else None


def _where(document: Document, part: str) -> Place | None:
    for sign in _SIGNS:
        key, found, wanted = part.partition(sign)
        if found:
            at = document.get(key)
            return at if at is not None and _is(at.value, sign, wanted) else None
    at = document.get(part)
    return at if at is not None and at.value else None


def _is(value: Any, sign: str, wanted: str) -> bool:
    if sign == "!=":
        return value is not None and not _is(value, "=", wanted)
    if sign == "=":
        return value is _WORDS[wanted] if wanted in _WORDS else str(value) == wanted
    if sign == "~":
        return wanted in str(value or "").lower()
    return is_number(value) and value > float(wanted)


def key_of(condition: str) -> str:
    """The key of a condition's first part."""
    part = condition.partition("&")[0].strip()
    return min((part.partition(sign)[0] for sign in _SIGNS), key=len)


def is_unknown(document: Document, condition: str) -> bool:
    """Whether a key of the condition is given a value that only running tells."""
    return any(key_of(part) in document.unknown for part in condition.split("&"))


def items(document: Document, key: str) -> Iterator[tuple[str, Place]]:
    """The keys of each mapping in a list: the key's name, and its place (`datasets[0].type`)."""
    at = document.get(key)
    for number, node in enumerate((at.node.items if at is not None else None) or ()):
        for name, child in (node.fields or {}).items():
            yield name, Place(document, f"{key}[{number}].{name}", child)


def is_checked(run: LintContext, since: str) -> bool:
    """Whether the release that runs has a check, as far as is known."""
    return not since or run.runs(since) is not False


def severity(run: LintContext, since: str) -> Severity | None:
    """A warning where the check came late and nobody names the release; else the rule's own."""
    return "warning" if since and run.runs(since) is None else None


def notes(run: LintContext, why: str, since: str) -> tuple[str, ...]:
    """The reason, and from which release on it is checked where nobody names one."""
    late = _releases(since) if severity(run, since) else ""
    return tuple(each for each in (why, late) if each)


def _releases(since: str) -> str:
    """Releases in words: `axolotl>=0.19` is 0.19 and later, `axolotl>=0.11,<0.16` stays a range."""
    if "<" in since:
        return f"checked by {since.replace(',', ' and ')}"
    return f"checked by {since.replace('>=', ' ')} and later"


def refused_pair(run: LintContext, document: Document, pair: Pair) -> Iterator[Finding]:
    """What is found where both conditions of a pair hold."""
    at, beside = where(document, pair.condition), where(document, pair.other)
    if at is not None and beside is not None and is_checked(run, pair.since):
        yield refused_beside(run, at, beside, (pair.why, pair.since))


def refused_beside(run: LintContext, at: Place, beside: Place, told: tuple[str, str]) -> Finding:
    """A place that cannot stand beside another: why, and since when."""
    return Finding(
        f"{_words(at)} cannot stand beside {_words(beside)}",
        (at.label("refused"), *([beside.label("", primary=False)] if beside != at else [])),
        notes(run, *told),
        "keep one of them",
        severity=severity(run, told[1]),
    )


def one_of_two(at: Place, beside: Place, why: str) -> Finding:
    """A key that cannot stand beside another, whatever the two say."""
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


def refused_alone(run: LintContext, document: Document, need: Need) -> Iterator[Finding]:
    """What is found where a need is not met."""
    found = lacking(run, document, need)
    if found is None:
        return
    at, beside = found
    wanted = told(need.others[0])
    every = " or ".join(told(each) for each in need.others[:2])
    yield Finding(
        f"{_words(at)} is refused without {every}",
        (at.label("refused"), *([beside.label("", primary=False)] if beside else [])),
        notes(run, need.why, need.since),
        f"write {wanted}, or remove {at.path}",
        severity=severity(run, need.since),
    )


def told(condition: str) -> str:
    """A condition as people would write it: `rl: dpo`."""
    return (
        condition.partition(" &")[0]
        .replace("!=", " other than ")
        .replace("=", ": ")
        .replace("~", ": ")
        .replace(">", " above ")
    )


def _words(at: Place) -> str:
    """The key, with its value where that is a word or a switch that is off."""
    value = at.value
    if value is False:
        return f"{at.path}: false"
    is_word = isinstance(value, str) and len(value) < 40
    return f"{at.path} {value}" if is_word else at.path
