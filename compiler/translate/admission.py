"""The keys that the reader of a file accepts in a release."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.consumers.schemas import known_releases
from tunec.compiler.emit import schema
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.effective import CLASSES
from tunec.compiler.lints.facts.known_keys import fields_of
from tunec.compiler.lints.kinds import kind_of
from tunec.compiler.passthrough import is_known
from tunec.compiler.target import Dialect, File, Target
from tunec.compiler.translate.statements import dialect_of

PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(TRL, ("transformers", "trl")),
    "hf": ("transformers",),
    "llamafactory": ("transformers", "llamafactory"),
    "axolotl": ("transformers", "axolotl"),
    "deepspeed": ("deepspeed",),
}
"""The packages that define the keys of a kind of file."""
_PLUGINS: Final = "axolotl.integrations."


def admits(target: Target, file: File, dialect: Dialect, key: str) -> bool:
    """Whether the reader of a file has a key, or accepts unknown keys."""
    known, top = schema_of(file, dialect), key.partition(".")[0]
    if not known:
        return knows(target, file, dialect, key) or not _is_ever_known(kind_of(target, file), top)
    is_free = known.get("additionalProperties") is not False
    return knows(target, file, dialect, key) or (is_free and top not in known.get("properties", ()))


def knows(target: Target, file: File, dialect: Dialect, key: str) -> bool:
    """Whether the reader of a file has a key in a release, by its schema or its class."""
    known, top = schema_of(file, dialect), key.partition(".")[0]
    if known:
        return top in known.get("properties", ()) and is_known(known, key)
    classes = CLASSES.get(kind_of(target, file), ())
    return any(
        top in fields_of(stem, str(dialect[package]))
        for stem, package in classes
        if package in dialect
    )


def _is_ever_known(kind: str, key: str) -> bool:
    """Whether any release has a field; keys of no release may be the script's own."""
    stems = [stem for stem, _ in CLASSES.get(kind, ())]
    return any(key in fields_of(stem, each) for stem in stems for each in known_releases(stem))


def schema_of(file: File, dialect: Dialect) -> Mapping[str, Any]:
    """The JSON Schema of a file's reader; empty if there is none."""
    name = file.schema(dialect) if file.schema else None
    return {} if name is None else schema(name)


def is_ignored(document: Document, run: LintContext, key: str) -> bool:
    """Whether the reader of a document ignores a top-level key, as it does not know it."""
    if document.target is None or document.file is None:
        return False
    known = schema_of(document.file, dialect_of(run, document.target))
    top = key.partition(".")[0]
    is_known = top in known.get("properties", ()) or _may_be_of_a_plugin(document, known, top)
    return known.get("x-unknown") == "ignored" and not is_known


def _may_be_of_a_plugin(document: Document, known: Mapping[str, Any], key: str) -> bool:
    """Whether a plugin that the document names has a key, or may have it."""
    said, held = document.value("plugins", []), known.get("x-plugins", {})
    if not isinstance(said, list):
        return True
    names = [str(each).removeprefix(_PLUGINS).rpartition(".")[0] for each in said]
    every = [held.get(name, {}) for name in names]
    return any(key in each.get("properties", {key}) for each in every)
