"""The words that a reader takes for a key, by the schema of its release."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.consumers.schemas import parsers_around
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.kinds import schema
from tunec.schemas.caches import cached

_BETWEEN: Final[Mapping[str, tuple[str, Mapping[str, frozenset[str]]]]] = {
    "llamafactory": ("0.9.4", {"infer_backend": frozenset({"ktransformers"})})
}
"""Choices that only a release between the known ones has: llamafactory 0.9.4 extras/constants.py
`EngineName.KT`, neither in 0.9.3 nor in 0.9.5. Its other choices are those of one of the two."""


def choices(run: LintContext, document: Document) -> Mapping[str, frozenset[str]]:
    """Choices by key: those of the release that runs, or of every known one if it is unknown.

    A release between two whose parsers were read gets the choices of both.
    """
    if document.target is None or document.file is None or document.file.schema is None:
        return {}
    target = document.target
    release = run.release(target.package)
    known = [Version(each) for each in target.releases]
    around = [Version(each) for each in parsers_around(target.package, release.version)]
    versions = around if release.is_named else [release.version, *known]
    names = (document.file.schema(target.dialect(each)) for each in versions)
    found = _joined(tuple(dict.fromkeys(name for name in names if name is not None)))
    if _is_closed_later(document):
        every = (document.file.schema(target.dialect(each)) for each in known)
        late = _joined(tuple(dict.fromkeys(name for name in every if name is not None)))
        found = {**found, **{key: late[key] for key in LATE if key in late}}
    between, also = _BETWEEN.get(target.package, ("", {}))
    if release.is_named and str(release.version) != between:
        return found
    return {key: words | also.get(key, frozenset()) for key, words in found.items()}


LATE: Final = ("lr_scheduler",)
"""Keys for which Axolotl 0.19 accepts any text, since a plugin may define a value, and passes it to
TrainingArguments, which knows the choices of earlier releases."""


def _is_closed_later(document: Document) -> bool:
    return document.kind == "axolotl" and document.get("plugins") is None


@cached()
def _joined(names: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    tables = [_words(name) for name in names]
    every = {key for table in tables for key in table}
    found = {key: [table[key] for table in tables if key in table] for key in every}
    return {key: frozenset().union(*sets) for key, sets in found.items()}


@cached()
def _words(name: str) -> Mapping[str, frozenset[str]]:
    read = schema(name)
    properties: Mapping[str, Any] = read.get("properties", {})
    named: Mapping[str, Any] = read.get("$defs", {})
    found = {key: _of(each, named) for key, each in properties.items() if isinstance(each, dict)}
    return {key: words for key, words in found.items() if words}


def _of(rule: Mapping[str, Any], named: Mapping[str, Any]) -> frozenset[str]:
    """The choices of one key; none if it also takes other text.

    A choice that ends in `*` stands for every text with that beginning.
    """
    parts = [_meant(part, named) for part in rule.get("anyOf", (rule,))]
    words = frozenset(word for part in parts for word in _choices(part) if isinstance(word, str))
    starts = frozenset(f"{part['pattern'][1:]}*" for part in parts if _is_start(part))
    is_open = any(not _choices(p) and _takes_text(p) and not _is_start(p) for p in parts)
    return frozenset() if is_open else words | starts


def _choices(part: Mapping[str, Any]) -> Sequence[Any]:
    return part.get("enum") or ([part["const"]] if "const" in part else ())


def _meant(part: Mapping[str, Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = named.get(str(part.get("$ref", "")).rpartition("/")[2], part)
    return found


def _is_start(part: Mapping[str, Any]) -> bool:
    """Whether a pattern only fixes the beginning of a text."""
    pattern = part.get("pattern")
    return isinstance(pattern, str) and pattern[:1] == "^" and pattern[1:].isidentifier()


def _takes_text(part: Mapping[str, Any]) -> bool:
    kind = part.get("type", ())
    return "string" in ((kind,) if isinstance(kind, str) else kind) or not part


def is_taken(word: str, known: frozenset[str]) -> bool:
    """Whether a word is among the known choices."""
    starts = tuple(each[:-1] for each in known if each.endswith("*"))
    return word in known or (bool(starts) and word.startswith(starts))
