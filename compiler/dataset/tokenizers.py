"""A model's own tokenizer, from local files; nothing is fetched."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.dataset.files import Unread
from tunec.compiler.diagnostics.wording import shortened
from tunec.compiler.frontend.disk import Unreadable
from tunec.compiler.frontend.model_folders import (
    TOKENIZER_CONFIG,
    chat_template,
    model_folders,
    object_in,
    text_in,
)
from tunec.compiler.frontend.names import is_written_as_path

_FILE: Final = "tokenizer.json"
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
    places = [folder] if folder is not None else list(model_folders(model))
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
    others = ("tokenizer.model", "vocab.json", TOKENIZER_CONFIG)
    if not any((folder / name).exists() for name in others):
        return "name the folder that holds it, such as that of the model"
    where = repr(str(folder))
    code = f"AutoTokenizer.from_pretrained({where}).save_pretrained({where})"
    return f"write one: `python -c {quote(f'from transformers import AutoTokenizer; {code}')}`"


def _read(folder: Path) -> TokenizerFiles:
    file = folder / _FILE
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    try:
        config, template = object_in(folder / TOKENIZER_CONFIG), chat_template(folder)
    except Unreadable as fault:
        raise Unread(f"cannot read a file beside `{shortened(str(file))}`: {fault}") from None
    special = {name: _token(config.get(name)) for name in _SPECIAL if config.get(name)}
    return TokenizerFiles(file, digest, special, template)


def _token(said: Any) -> str:
    return str(said.get("content", "")) if isinstance(said, Mapping) else str(said)


def text_of(file: Path) -> str:
    """The text of a tokenizer's file. Raises Unread."""
    try:
        return text_in(file)
    except Unreadable as fault:
        raise Unread(f"cannot read `{shortened(str(file))}`: {fault}") from None
