"""The location and format of the data sets that a user's dataset_info.json describes.

The reader puts the file beside the YAML's own keys, under `KEY`. llamafactory 0.9.1 to 0.9.5
data/parser.py `get_dataset_list`, `DatasetAttr.join`; data/loader.py `_load_single_dataset`.
"""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.lints.kinds import EXPLAINED as KEY
from tunec.compiler.target import Json
from tunec.schemas.data_paths import chosen, data_kind, data_name, first_of
from tunec.schemas.terms import DataFormat
from tunec.targets.read_only import split_names

_HUB, _LOCAL, _FOLDER = "hf_hub_url", "file_name", "data"
_ALPACA: Final = {"prompt": "instruction", "query": "input", "response": "output"}
_TAGS: Final = {
    "role_tag": "from",
    "content_tag": "value",
    "user_tag": "human",
    "assistant_tag": "gpt",
}
_OPENAI: Final = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
}
_ELSEWHERE: Final = ("ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
_LOST: Final = {"num_samples": "draws so many of its samples", "folder": "reads one folder of it"}


def _said(found: Mapping[str, Json], names: tuple[str, ...]) -> list[Mapping[str, Any]]:
    info = found.get(KEY)
    every = [info.get(name) for name in names] if isinstance(info, Mapping) else []
    return [each for each in every if isinstance(each, Mapping)]


def paths(found: Mapping[str, Json], key: str) -> tuple[str, ...]:
    """The locations of the data sets that a key names; none, unless all are known."""
    names = split_names(found.get(key))
    folder = found.get("dataset_dir")
    places = [
        _place(each, folder if isinstance(folder, str) else _FOLDER) for each in _said(found, names)
    ]
    is_whole = bool(names) and len(places) == len(names) and all(places)
    return tuple(filter(None, places)) if is_whole else ()


def limited(path: str, most: Json) -> tuple[str, int]:
    """A data set without a slice of its first samples, and how many of these are taken; 0: all.

    llamafactory 0.9.1 to 0.9.5 data/loader.py `_load_single_dataset`: the first `max_samples`.
    """
    said = chosen(path)
    split, sliced = first_of(said.split)
    bounds = [each for each in (sliced, most) if isinstance(each, int) and each > 0]
    whole = data_name(said.path, said.config, split) if sliced else path
    return whole, min(bounds, default=0)


def places(found: Mapping[str, Json], key: str) -> list[Mapping[str, str]]:
    """The data sets that a key names, as arguments of `load_dataset`; unknown ones by their names.

    Hugging Face datasets 2.14 to 5.0 load.py: the file's type is the path, the file is an argument.
    """
    return [_loaded(each) for each in paths(found, key) or split_names(found.get(key))]


def _loaded(path: str) -> Mapping[str, str]:
    ending = path.rpartition(".")[2].replace("jsonl", "json")
    if data_kind(path) == "file" and ending in ("json", "csv", "parquet"):
        return {"path": ending, "data_files": path}
    said = chosen(path)
    config = {} if said.config is None else {"name": said.config}
    split = {} if said.split is None else {"split": said.split}
    return {"path": said.path, **config, **split}


def _place(said: Mapping[str, Any], folder: str) -> str | None:
    if _HUB in said:
        return data_name(str(said[_HUB]), said.get("subset"), said.get("split") or "train")
    if _LOCAL not in said or any(key in said for key in _ELSEWHERE):
        return None
    local = str(said[_LOCAL])
    path = posixpath.normpath(posixpath.join(folder, local))
    return path if data_kind(path) != "name" else f"./{path}"


def records(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The one format of all records, if a spec can name it."""
    names = split_names(found.get("dataset"))
    said = _said(found, names)
    forms = {_form(each) for each in said}
    is_known = bool(names) and len(said) == len(names) and len(forms) == 1 and "" not in forms
    if not is_known or any(each.get("ranking") for each in said):
        return {}
    form = forms.pop()
    return {"data.format": None if form == "messages" else form}


def _form(said: Mapping[str, Any]) -> DataFormat | str:
    """The format of records; empty if a spec has none for it. Unnamed columns have no default."""
    columns = said.get("columns", _ALPACA)
    if said.get("formatting", "alpaca") == "alpaca":
        named = {key: each for key, each in columns.items() if key in _ALPACA}
        return "alpaca" if named.items() <= _ALPACA.items() else ""
    tags = {key: each for key, each in said.get("tags", _TAGS).items() if key in _TAGS}
    messages = columns.get("messages") if "columns" in said else "conversations"
    if messages == "conversations" and tags == _TAGS:
        return "sharegpt"
    return "messages" if messages == "messages" and tags == _OPENAI else ""


def left(found: Mapping[str, Json], key: str) -> Iterator[str]:
    """Why other programs cannot use a key's data sets as they are, one reason at a time."""
    every = {name: (_said(found, (name,)) or [{}])[0] for name in split_names(found.get(key))}
    for name, said in every.items():
        yield from _left(name, said)
    forms = {name: _form(said) for name, said in every.items() if said and not said.get("ranking")}
    if len({*filter(None, forms.values())}) > 1:
        what = joined((f"{name} has {form}" for name, form in forms.items() if form), "and")
        yield f"{what} records: another program reads all as one form"


def _left(name: str, said: Mapping[str, Any]) -> Iterator[str]:
    if not said:
        yield f"dataset_info.json does not describe {name}"
        return
    elsewhere = [each for each in _ELSEWHERE if each in said]
    if elsewhere and _HUB not in said:
        yield f"{name} is found by {elsewhere[0]}, which no other program reads"
    for key, what in _LOST.items():
        if said.get(key):
            yield f"{name} has {key}: llamafactory {what}"
    if said.get("ranking"):
        columns = said.get("columns", {})
        if any(columns.get(each) != each for each in ("prompt", "chosen", "rejected")):
            yield f"{name} has its pairs in other columns than prompt, chosen and rejected"
    elif not _form(said):
        yield f"{name} has columns or tags of its own"


def is_read(found: Mapping[str, Json]) -> bool:
    """Whether a dataset_info.json was read."""
    return KEY in found
