"""The words that a reader takes for a key, by the schema of its release."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from packaging.version import Version

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.run import Run


def choices(run: Run, document: Document) -> Mapping[str, frozenset[str]]:
    """Words by key: those of the release that runs, or of every known one where it is not known."""
    if document.target is None or document.file is None or document.file.schema is None:
        return {}
    target = document.target
    release = run.release(target.package)
    versions = [release.version, *(Version(each) for each in target.releases)]
    if release.is_named:
        versions = versions[:1]
    names = (document.file.schema(target.dialect(each)) for each in versions)
    return _joined(tuple(dict.fromkeys(name for name in names if name is not None)))


@cache
def _joined(names: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    tables = [_words(name) for name in names]
    every = {key for table in tables for key in table}
    found = {key: [table[key] for table in tables if key in table] for key in every}
    return {key: frozenset().union(*sets) for key, sets in found.items()}


@cache
def _words(name: str) -> Mapping[str, frozenset[str]]:
    properties: Mapping[str, Any] = schema(name).get("properties", {})
    found = {key: _of(each) for key, each in properties.items() if isinstance(each, dict)}
    return {key: words for key, words in found.items() if words}


def _of(rule: Mapping[str, Any]) -> frozenset[str]:
    """The words of one key; none where it takes other text as well."""
    parts = rule.get("anyOf", (rule,))
    words = frozenset(
        word for part in parts for word in part.get("enum", ()) if isinstance(word, str)
    )
    is_open = any("enum" not in part and _takes_text(part) for part in parts)
    return frozenset() if is_open else words


def _takes_text(part: Mapping[str, Any]) -> bool:
    kind = part.get("type", ())
    return "string" in ((kind,) if isinstance(kind, str) else kind) or not part
