"""A model's own tokenizer, from local files; nothing is fetched."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.dataset.files import Unread
from tunec.compiler.diagnostics.wording import shortened
from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.frontend.names import is_written_as_path

_FILE: Final = "tokenizer.json"
_CONFIG: Final = "tokenizer_config.json"
_TEMPLATE: Final = "chat_template.jinja"
_OLD_TEMPLATE: Final = "chat_template.json"
_SPECIAL: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


class TokenizerFiles(Struct, frozen=True):
    """The contents of a tokenizer's folder."""

    file: Path
    sha256: str
    special: Mapping[str, str]
    """Special tokens by name: `bos_token` and so on."""
    template: str | None


def find(model: str, folder: Path | None) -> TokenizerFiles:
    """A model's tokenizer in a folder, or else in the Hub's cache. Raises Unread."""
    places = [folder] if folder is not None else list(_places(model))
    for place in places:
        if (place / _FILE).is_file():
            return _read(place)
    if folder is not None:
        raise Unread(f"`{folder}` has no {_FILE}", _saving(folder))
    if is_written_as_path(model):
        where = f"`{model}` has no {_FILE}" if Path(model).exists() else f"there is no `{model}`"
        raise Unread(where, _NAMING)
    wanted = '"tokenizer*" "chat_template*" "special_tokens_map.json"'
    fetch = f"hf download {quote(model)} --include {wanted}"
    raise Unread(
        f"the tokenizer of {model} is not on this machine", f"fetch it with `{fetch}`, {_NAMING}"
    )


_NAMING: Final = (
    "name its folder with --tokenizer DIR, or ask for an estimate by characters: --estimate"
)


def _saving(folder: Path) -> str | None:
    """How to create the missing tokenizer file, if that is possible."""
    if not any((folder / name).exists() for name in ("tokenizer.model", "vocab.json", _CONFIG)):
        return "name the folder that holds it, such as that of the model"
    where = repr(str(folder))
    code = f"AutoTokenizer.from_pretrained({where}).save_pretrained({where})"
    return f"write one: `python -c {quote(f'from transformers import AutoTokenizer; {code}')}`"


def _places(model: str) -> Iterator[Path]:
    """Folders of a model: itself, and its snapshots in the cache, the current one first.

    huggingface_hub 2.4.0 constants.py: HF_HUB_CACHE, then HF_HOME, then XDG_CACHE_HOME.
    """
    if Path(model).is_dir():
        yield Path(model)
    if Path(model).is_file():
        yield Path(model).parent
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface"
    home = Path(os.environ.get("HF_HOME") or home).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    snapshots = cache / f"models--{model.replace('/', '--')}" / "snapshots"
    main = snapshots.parent / "refs" / "main"
    if main.is_file():
        yield snapshots / main.read_text("utf-8").strip()
    if snapshots.is_dir():
        yield from sorted(each for each in snapshots.iterdir() if each.is_dir())


def _read(folder: Path) -> TokenizerFiles:
    file = folder / _FILE
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    config = _object(folder / _CONFIG)
    special = {name: _token(config.get(name)) for name in _SPECIAL if config.get(name)}
    return TokenizerFiles(file, digest, special, _template(folder, config))


def _token(said: Any) -> str:
    return str(said.get("content", "")) if isinstance(said, Mapping) else str(said)


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The chat template; as in transformers 5.23.0, a template file overrides the config."""
    if (folder / _TEMPLATE).is_file():
        return text_of(folder / _TEMPLATE)
    said = config.get("chat_template") or _object(folder / _OLD_TEMPLATE).get("chat_template")
    if isinstance(said, list):
        named = (each for each in said if isinstance(each, Mapping))
        said = next((each.get("template") for each in named if each.get("name") == "default"), None)
    return said if isinstance(said, str) else None


def text_of(file: Path) -> str:
    """The text of a tokenizer's file. Raises Unread."""
    try:
        return read_bytes(file).decode("utf-8")
    except (Unreadable, UnicodeDecodeError) as fault:
        why = fault if isinstance(fault, Unreadable) else f"it is not UTF-8 text: {fault.reason}"
        raise Unread(f"cannot read `{shortened(str(file))}`: {why}") from None


def _object(file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(text_of(file))
    except (ValueError, RecursionError) as fault:
        raise Unread(f"`{file.name}` beside the tokenizer is not JSON: {fault}") from None
    return found if isinstance(found, Mapping) else {}
