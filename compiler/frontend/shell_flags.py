"""Words of a command as typed nodes, with the places where they are written."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.frontend.nodes import MAX_DIGITS, MAX_NODES, Node
from tunec.compiler.frontend.shell_launch import Flags, named
from tunec.compiler.frontend.shell_variables import Field
from tunec.compiler.frontend.text import Places
from tunec.schemas.frozen import replace
from tunec.schemas.source import Path, Span

_INTEGER: Final = re.compile(rf"[-+]?[0-9]{{1,{MAX_DIGITS}}}")
_FLOAT: Final = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_REALLY_NO: Final = frozenset(
    {
        *("no_cuda", "no_python", "no_ssh", "no_ssh_check", "no_local_rank", "no_tpu_cluster"),
        *("no_metadata", "no_half_vae", "no_token_padding", "no_vae_load"),
    }
)
"""Flags whose own name begins with `no_`: `TrainingArguments.no_cuda` (transformers 4.40.2),
launchers', sd-scripts' and musubi-tuner's (0.10.1 library/train_util.py, 0.3.4
hv_train_network.py)."""


class Unknown(Struct, frozen=True):
    """A value that is only known when the script runs."""

    written: str
    reason: str


class UnknownValue(Struct, frozen=True):
    """The place of such a value in a document."""

    path: Path
    span: Span
    written: str
    reason: str


class Builder(Struct, frozen=True):
    """Converts words of one file to nodes."""

    places: Places

    def span(self, word: Field) -> Span:
        """The place of a word."""
        return self.places.span(*word.place())

    def leaf(self, word: Field) -> Node:
        """A word, converted by its form; `written` keeps the text."""
        if not word.is_known:
            return Node(self.span(word), _hidden(word))
        return Node(self.span(word), typed(word.text), written=word.text)

    def text(self, word: Field) -> Node:
        """A word as text."""
        return replace(self.leaf(word), value=word.text) if word.is_known else self.leaf(word)

    def flags(self, flags: Flags) -> Node:
        """A mapping of flags; if a flag occurs twice the last counts, as in argparse."""
        found: dict[str, Node] = {}
        for flag, values in flags[:MAX_NODES]:
            name, value = named(flag)
            node = self._value(flag, (value,) if value is not None else values)
            if name.startswith("no_") and name not in _REALLY_NO and not values and value is None:
                name, node = name[3:], replace(node, value=False)
            found[name] = replace(node, key_span=self._key(flag, value))
        return Node(around(list(found.values()), self.places), fields=found)

    def with_overrides(self, node: Node, words: Sequence[Field]) -> Node:
        """Flags with the words `key=value` beside them, as on OmegaConf's command line."""
        found = dict(node.fields or {})
        for word in words:
            name = word.text.partition("=")[0]
            if is_override(word):
                key = self.span(replace(word, chars=word.chars.cut(0, len(name))))
                found[name] = replace(self.leaf(word.cut(len(name) + 1)), key_span=key)
        return replace(node, fields=found)

    def mapping(self, nodes: Mapping[str, Node]) -> Node:
        """A mapping around nodes."""
        return Node(around(list(nodes.values()), self.places), fields=dict(nodes))

    def words(self, words: Sequence[Field]) -> Node:
        """A list of words as text."""
        items = tuple(self.text(word) for word in words[:MAX_NODES])
        return Node(items[0].span if items else self.places.span(0, 0), items=items)

    def _value(self, flag: Field, values: Sequence[Field]) -> Node:
        if not values:
            return Node(self.span(flag), value=True)
        if len(values) == 1:
            return self.leaf(values[0])
        items = tuple(self.leaf(word) for word in values[:MAX_NODES])
        hidden = [each.value for each in items if isinstance(each.value, Unknown)]
        if hidden:  # of a list that is known in part, nothing can be said
            written = " ".join(word.word.text for word in values[:MAX_NODES])
            return Node(around(items, self.places), Unknown(written, hidden[0].reason))
        return Node(around(items, self.places), items=items)

    def _key(self, flag: Field, value: Field | None) -> Span:
        if value is None:
            return self.span(flag)
        end = len(flag.text) - len(value.text) - 1
        return self.span(replace(flag, chars=flag.chars.cut(0, end)))


def is_override(word: Field) -> bool:
    """Whether a word is `key=value`."""
    name, given, _ = word.text.partition("=")
    return bool(given) and name.isidentifier()


def around(nodes: Sequence[Node], places: Places) -> Span:
    """The span from the first to the last of some nodes."""
    spans = [node.key_span or node.span for node in nodes]
    if not spans:
        return places.span(0, 0)
    first = min(spans, key=lambda each: (each.line, each.column))
    last = max((node.span for node in nodes), key=lambda each: (each.end_line, each.end_column))
    return replace(first, end_line=last.end_line, end_column=last.end_column)


def _hidden(word: Field) -> Unknown:
    written = word.word.text
    if "$(" in written and "$((" not in written:
        return Unknown(written, "a command's output says it")
    if "`" in written:
        return Unknown(written, "a command's output says it")
    if "$((" in written:
        return Unknown(written, "it is computed when the script runs")
    return Unknown(written, "the script does not set the variable to one literal value")


def hidden_in(node: Node, path: Path = ()) -> Iterator[UnknownValue]:
    """Every unknown value of a document."""
    if isinstance(node.value, Unknown):
        yield UnknownValue(path, node.span, node.value.written, node.value.reason)
    for part, child in node.children():
        yield from hidden_in(child, (*path, part))


# ── types ────────────────────────────────────────────────────────────────────────────────────────


def typed(word: str) -> Any:
    """A word as bool, int, float or text, by how it looks."""
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if _INTEGER.fullmatch(word):
        return int(word)
    return float(word) if _FLOAT.fullmatch(word) else word
