"""Keys beside a trainer's own that no program which is known has."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.consumers.moved_keys import moved_key
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted
from tunec.compiler.lints.checks.keys.names import is_near
from tunec.compiler.lints.checks.keys.other_tools import OF_ENGINES
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.facts.key_releases import HANDBOOK, PPO
from tunec.compiler.lints.facts.known_keys import fields_ever, keys_ever, script_keys
from tunec.compiler.lints.kinds import known_keys
from tunec.compiler.lints.rule import Finding, rule
from tunec.compiler.target import Target
from tunec.schemas.caches import ByIdentity

_KINDS: Final = ("hf", *TRL)
_PARSER: Final = "HfArgumentParser and TrlParser refuse a key that none of the script's classes has"
_MOST: Final = 4
"""Keys that are named with the one that is nearest to each."""


@rule(
    "key-of-no-class",
    "warning",
    "parse",
    consumers=("transformers", "trl"),
    reads=tuple(f"{kind}:*" for kind in _KINDS),
)
def key_of_no_class(run: LintContext) -> Iterator[Finding]:
    """Keys of a trainer's file that none of its classes has, nor any other program."""
    for document in run.of(*_KINDS):
        if document.is_view or document.format in ("shell", "env", "python"):
            continue
        mine = _fields(document.kind)
        tops = ((key, at) for key, at in document.found.items() if "." not in key)
        others = {key: at for key, at in tops if key not in mine}
        unknown = {key: at for key, at in others.items() if _is_unclaimed(run, key, mine)}
        if unknown:
            is_whole = len(unknown) == len(others) and _is_surely(document)
            yield _finding(document, unknown, mine, is_whole=is_whole)


def _is_surely(document: Document) -> bool:
    """Whether the file is of no other class: scripts of others name models and data as TRL's do."""
    own = _fields("hf") if document.kind == "hf" else keys_ever(document.kind) - _fields("hf")
    return not own.isdisjoint(document.found)


def _fields(kind: str) -> frozenset[str]:
    """What the trainer's script takes by itself; TrainingArguments alone, or TRL's script."""
    if kind == "hf":
        return fields_ever("training_arguments")
    today = (each for each in HANDBOOK.values() if each is not None)
    return keys_ever(kind) | script_keys() | frozenset((*HANDBOOK, *today, *PPO))


def _is_unclaimed(run: LintContext, key: str, mine: frozenset[str]) -> bool:
    is_private = key.startswith(("_", "//", "#", "<<"))
    if is_private or key in OF_ENGINES or is_near(key, mine):
        return False
    return key not in _ALL.of(run.targets) and not run.own.declares(key)


def _every_key(targets: Mapping[str, Target]) -> frozenset[str]:
    every = (known_keys(target, file) for target in targets.values() for file in target.files)
    return frozenset[str]().union(*every)


_ALL: Final = ByIdentity("keys of all programs", 4, _every_key)


def _finding(
    document: Document, unknown: Mapping[str, Place], mine: frozenset[str], *, is_whole: bool
) -> Finding:
    """One for a file; keys like none, or beside those of other classes, may be a script's own."""
    near = {key: _nearest(key, mine - document.found.keys()) for key in unknown}
    told = [f"`{key}`: {did_you_mean(names)}" for key, names in near.items() if names]
    only = next(iter(near.values())) if len(near) == 1 else []
    return Finding(
        f"no program that is known has a key {quoted(unknown)}",
        tuple(at.key_label("no such field") for at in unknown.values()),
        (_PARSER, *(told[:_MOST] if len(unknown) > 1 else ())),
        did_you_mean(only) or "remove what the script has no class for",
        certain=is_whole and all(near.values()),
    )


def _nearest(key: str, fields: frozenset[str]) -> list[str]:
    """The fields that are nearest, under the names that they have today."""
    return list(dict.fromkeys(map(_today, nearest(key, fields))))


def _today(field: str) -> str:
    moved = moved_key("transformers", field)
    return moved.new if moved is not None and moved.new and "." not in moved.new else field
