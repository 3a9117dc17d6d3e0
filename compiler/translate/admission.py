"""The keys that the reader of a file accepts in a release, and older names of keys."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import MOVED, Moved
from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.emit import schema
from tunec.compiler.frontend.nodes import Node, plain
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.effective import CLASSES, releases_around
from tunec.compiler.lints.facts.known_keys import fields_of
from tunec.compiler.lints.kinds import kind_of
from tunec.compiler.passthrough import is_known
from tunec.compiler.target import Dialect, File, Target
from tunec.compiler.translate.statements import dialect_of
from tunec.schemas.frozen import replace

PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(TRL, ("transformers", "trl")),
    "hf": ("transformers",),
    "llamafactory": ("transformers", "llamafactory"),
    "axolotl": ("transformers", "axolotl"),
    "deepspeed": ("deepspeed",),
}
"""The packages that define the keys of a kind of file."""
_BASE: Final = "training_arguments"
"""The class from which trainers inherit keys."""
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
        return _has(known, top, dialect) and (key == top or is_known(known, key))
    return any(
        _has(class_schema(stem, each), top, dialect)
        for stem, package in CLASSES.get(kind_of(target, file), ())
        if package in dialect
        for each in releases_around(stem, str(dialect[package]))
    )


def _has(known: Mapping[str, Any], key: str, dialect: Dialect) -> bool:
    """Whether a reader has a key; the running release of transformers decides about its own."""
    is_there, beside = key in known.get("properties", ()), _transformers_beside(known)
    if beside is None or "transformers" not in dialect:
        return is_there
    was, runs = (key in fields_of(_BASE, each) for each in (beside, str(dialect["transformers"])))
    return is_there if was == runs else runs


def _transformers_beside(known: Mapping[str, Any]) -> str | None:
    """The release of transformers from which the keys of a schema were inherited."""
    pins = (each.partition("==") for each in known.get("x-beside", ()))
    return next((release for name, _, release in pins if name == "transformers"), None)


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


def with_newer_names(document: Document, run: LintContext) -> Document:
    """The document with keys under their current names, if its own reader accepts them.

    A key whose current name also occurs stays unchanged.
    """
    if document.target is None or document.file is None:
        return document
    dialect = dialect_of(run, document.target)
    root = document.root
    for package in PACKAGES.get(document.kind, ()):
        for moved in MOVED[package]:
            if moved.is_alias and knows(document.target, document.file, dialect, moved.new):
                root = _renamed(root, moved)
    return document if root is document.root else replace(document, root=root)


def _renamed(root: Node, moved: Moved) -> Node:
    old, new = moved.old.split("."), moved.new.split(".")
    node, is_taken = _at(root, old), _at(root, new) is not None
    if node is None or is_taken or not _has_room(root, new):
        return root
    value = plain(node)
    said = moved.words(value) if value is not None else None
    if said is None:  # a switch that is off says nothing of the other key
        return root
    return _with(_without(root, old), new, node if said == value else _holding(node, said))


def _at(root: Node, path: list[str]) -> Node | None:
    node: Node | None = root
    for part in path:
        node = (node.fields or {}).get(part) if node is not None else None
    return node


def _has_room(root: Node, path: list[str]) -> bool:
    """Whether the parent of a key is a mapping, or is absent."""
    around = (_at(root, path[:end]) for end in range(1, len(path)))
    return all(each is None or each.fields is not None for each in around)


def _without(node: Node, path: list[str]) -> Node:
    head, *rest = path
    fields: Mapping[str, Node] = node.fields or {}
    kept = {key: child for key, child in fields.items() if key != head}
    if rest and (inner := _without(fields[head], rest)).fields:
        kept = {key: inner if key == head else child for key, child in fields.items()}
    return replace(node, fields=kept)


def _with(node: Node, path: list[str], leaf: Node) -> Node:
    head, *rest = path
    fields = node.fields or {}
    inner = fields.get(head, Node(leaf.span, key_span=leaf.key_span, fields={}))
    return replace(node, fields={**fields, head: _with(inner, rest, leaf) if rest else leaf})


def _holding(node: Node, value: Any) -> Node:
    """A node at the same place with another value: a leaf, or a list of leaves."""
    if isinstance(value, list):
        items = tuple(replace(node, value=each, key_span=None) for each in value)
        return replace(node, value=None, items=items, written=None)
    return replace(node, value=value, items=None, written=None)
