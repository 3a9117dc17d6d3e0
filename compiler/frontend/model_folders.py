"""The local folders of a model, and the chat template in one; nothing is fetched."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tunec.compiler.derived_cards import hub_folder
from tunec.compiler.frontend.disk import Unreadable, read_bytes

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_TEMPLATE: Final = "chat_template.jinja"
_OLD_TEMPLATE: Final = "chat_template.json"


def model_folders(model: str) -> Iterator[Path]:
    """Folders of a model: itself, and its snapshots in the Hub's cache, the current one first."""
    if Path(model).is_dir():
        yield Path(model)
    if Path(model).is_file():
        yield Path(model).parent
    folder = hub_folder(model)
    snapshots, main = folder / "snapshots", folder / "refs" / "main"
    if main.is_file():
        yield snapshots / main.read_text("utf-8").strip()
    if snapshots.is_dir():
        yield from sorted(each for each in snapshots.iterdir() if each.is_dir())


def chat_template(folder: Path) -> str | None:
    """The chat template; as in transformers 5.23.0, a file of its own overrides the config.

    Raises Unreadable.
    """
    if (folder / _TEMPLATE).is_file():
        return text_in(folder / _TEMPLATE)
    said = object_in(folder / TOKENIZER_CONFIG).get("chat_template")
    said = said or object_in(folder / _OLD_TEMPLATE).get("chat_template")
    if isinstance(said, list):
        named = (each for each in said if isinstance(each, Mapping))
        said = next((each.get("template") for each in named if each.get("name") == "default"), None)
    return said if isinstance(said, str) else None


def has_chat_template(model: str) -> bool | None:
    """Whether the tokenizer of a model has a template; None: it is not here, or not readable."""
    for folder in model_folders(model):
        if (folder / TOKENIZER_CONFIG).is_file():
            try:
                return chat_template(folder) is not None
            except Unreadable:
                return None
    return None


def text_in(file: Path) -> str:
    """The text of a file. Raises Unreadable."""
    try:
        return read_bytes(file).decode("utf-8")
    except UnicodeDecodeError as fault:
        raise Unreadable(f"it is not UTF-8 text: {fault.reason}") from None


def object_in(file: Path) -> Mapping[str, Any]:
    """The JSON object in a file; empty if there is no file. Raises Unreadable."""
    if not file.is_file():
        return {}
    try:
        found = json.loads(text_in(file))
    except (ValueError, RecursionError) as fault:
        raise Unreadable(f"it is not JSON: {fault}") from None
    return found if isinstance(found, Mapping) else {}
