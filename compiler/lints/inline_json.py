"""Mappings that stand in a file as one text: JSON in a flag, or the name of a file that holds them.

What is unfolded stands where the text stands, so no edit can be made inside it.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from tunec.compiler.frontend.nodes import Node
from tunec.schemas.frozen import replace

MAPPINGS: Final = (
    *("accelerator_config", "fsdp_config", "lr_scheduler_kwargs"),
    *("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
)
"""Fields whose text is read as JSON where it begins with a brace: transformers 4.40.2 to 5.23.0
training_args.py `TrainingArguments._VALID_DICT_FIELDS`; `deepspeed` is followed as a file."""
OPTIONS_FILE: Final = "fsdp_config"
"""The field whose other texts name a JSON file: the same, `_process_fsdp_args`."""


def with_inline_json(root: Node, read: Callable[[Node], str | None]) -> Node:
    """A trainer's keys with every such mapping in place of its text.

    `read` gives the text of the file that a value names, or None. What is no JSON object stays.
    """
    fields = root.fields or {}
    found = {key: _mapping(key, fields[key], read) for key in MAPPINGS if key in fields}
    changed = {key: node for key, node in found.items() if node is not None}
    return replace(root, fields={**fields, **changed}) if changed else root


def _mapping(key: str, node: Node, read: Callable[[Node], str | None]) -> Node | None:
    text = node.value
    if not isinstance(text, str):
        return None
    if not text.startswith("{"):
        text = read(node) if key == OPTIONS_FILE else None
    try:
        data = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
    return replace(_node(data, node), key_span=node.key_span) if isinstance(data, dict) else None


def _node(data: Any, at: Node) -> Node:
    if isinstance(data, dict):
        fields = {key: _node(value, at) for key, value in data.items()}
        return Node(at.span, fields=fields, is_inline_json=True)
    if isinstance(data, list):
        items = tuple(_node(value, at) for value in data)
        return Node(at.span, items=items, is_inline_json=True)
    return Node(at.span, _read(data), is_inline_json=True)


def _read(value: Any) -> Any:
    """transformers 4.40.2 to 5.23.0 training_args.py `_convert_str_dict`: "true" is true, "8" 8."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value.isdecimal():
        return int(value)
    return float(value) if value.replace(".", "", 1).isdecimal() else value
