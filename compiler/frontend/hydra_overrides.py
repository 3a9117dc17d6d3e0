"""Words of Hydra's command line as the document that they set: `a.b=c`, `+a.b=c`, `++a.b=[d,e]`.

hydra-core 1.3.8 grammar/OverrideLexer.g4 and OverrideParser.g4. Words with sweeps, functions and
deletions (`~a.b`) set no value.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.shell_flags import Builder, Unknown, around, typed
from tunec.compiler.frontend.shell_references import OVER_A_FILE, Reference
from tunec.compiler.frontend.shell_variables import Field
from tunec.schemas.frozen import replace
from tunec.schemas.source import Path

_PROGRAM: Final = re.compile(
    r"(?:\A|[./])verl[./]trainer[./](?P<name>main_ppo(?:_sync)?|sft_trainer|fsdp_sft_trainer)"
    r"(?:\.py)?\Z"
)
"""verl 0.8.0 to 0.9.1 trainer: programs that train; before 0.8 the SFT trainer had another name."""
_OWN: Final[Mapping[str, str]] = {
    "main_ppo": "ppo_trainer",
    "main_ppo_sync": "ppo_trainer",
    "sft_trainer": "sft_trainer_engine",
    "fsdp_sft_trainer": "sft_trainer",
}
"""The file that each composes, in `config` beside it: its `hydra.main`."""
_BESIDE: Final = (None, "config", "./config")
"""hydra-core 1.3.8 _internal/utils.py `compute_search_path_dir`: from the program's own folder."""
_OVERRIDE: Final = re.compile(r"(?P<sign>\+{0,2})(?P<key>[A-Za-z_][\w.]*)=")
_CONFIG: Final = "--config-"
_ARRAY: Final = re.compile(r"\[[@*]\]")
_LIST: Final = re.compile(r"\[(?P<items>[^\[\]{}]*)\]")


def is_composed(started: str) -> bool:
    """Whether a program reads its command line this way."""
    return _PROGRAM.search(started) is not None


def without_overrides(words: Sequence[Node]) -> tuple[Node, ...]:
    """The words of a command without overrides, arrays of them, and the name of its config."""
    kept: list[Node] = []
    before = ""
    for word in words:
        text = word.value.written if isinstance(word.value, Unknown) else str(word.value)
        is_read = _OVERRIDE.match(text) or _ARRAY.search(text) or text.startswith(_CONFIG)
        is_value = before.startswith(_CONFIG) and "=" not in before
        kept += [] if is_read or is_value else [word]
        before = text
    return tuple(kept)


def reader_of(started: str, flags: Node) -> str:
    """The reader of a command's overrides, by the file under them."""
    found, name = _PROGRAM.search(started), _said(flags, "config_name")
    own = _OWN[found["name"]] if found is not None else None
    is_own = name is None or str(name).removesuffix(".yaml") == own
    is_beside = _said(flags, "config_path") in _BESIDE and flags.child("config_dir") is None
    return "verl" if is_own and is_beside else OVER_A_FILE


def _said(flags: Node, key: str) -> Any:
    said = flags.child(key)
    return None if said is None else said.value


def file_of(flags: Node) -> Iterator[Reference]:
    """The config file that replaces the program's own: `--config-dir d --config-name n`."""
    name, path = flags.child("config_name"), _said(flags, "config_path")
    folder = _said(flags, "config_dir") or (None if path in _BESIDE else path)
    if name is not None and isinstance(folder, str) and isinstance(name.value, str):
        file = f"{folder.rstrip('/')}/{name.value.removesuffix('.yaml')}.yaml"
        yield Reference(("config_name",), file, "verl", name.span)


def overridden(words: Sequence[Field], builder: Builder) -> tuple[Node, tuple[Field, ...]]:
    """The document that overrides set, and the words that are no overrides."""
    found: dict[Path, Node] = {}
    loose: list[Field] = []
    for word in words:
        said = _OVERRIDE.match(word.text)
        if said is None:
            loose.append(word)
            continue
        key = replace(word, chars=word.chars.cut(said.start("key"), said.end("key")))
        found[tuple(said["key"].split("."))] = replace(
            _value(word.cut(said.end()), builder), key_span=builder.span(key)
        )
    return _nested(found, builder), tuple(loose)


def _value(word: Field, builder: Builder) -> Node:
    """A leaf, or a list of leaves; the quotes are Hydra's own and not part of a text."""
    leaf = builder.leaf(word)
    if not word.is_known:
        return leaf
    text = word.text.strip()
    if text == "null":
        return replace(leaf, value=None)
    listed = _LIST.fullmatch(text)
    if listed is not None:
        parts = [each.strip() for each in listed["items"].split(",") if each.strip()]
        return replace(
            leaf, value=None, written=None, items=tuple(_leaf(leaf, each) for each in parts)
        )
    return _leaf(leaf, text)


def _leaf(leaf: Node, text: str) -> Node:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return replace(leaf, value=text[1:-1], written=text)
    return replace(leaf, value=typed(text), written=text)


def _nested(found: Mapping[Path, Node], builder: Builder) -> Node:
    """Leaves by path as nested mappings; if a leaf and a mapping collide, the last one counts."""
    heads: dict[str, dict[Path, Node]] = {}
    fields: dict[str, Node] = {}
    for (head, *rest), node in found.items():
        if rest:
            fields.pop(str(head), None)
            heads.setdefault(str(head), {})[tuple(rest)] = node
        else:
            heads.pop(str(head), None)
            fields[str(head)] = node
    for head, inner in heads.items():
        below = _nested(inner, builder)
        first = next(iter(inner.values()))
        fields[head] = replace(below, key_span=first.key_span)
    return Node(around(list(fields.values()), builder.places), fields=fields)
