"""dataset_info.json, which describes the data sets of the YAML, and the rows that name them.

The program looks for the file in `dataset_dir`, and for each data set in the file: local files by
their path from that folder, others by their name on the Hub.
"""

import posixpath
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, limited_data, training_data
from tunec.compiler.target import Entry, File, Json, constant, derived
from tunec.schemas.data_paths import (
    FORMATS,
    Record,
    chosen,
    data_kind,
    data_name,
    usual_split,
    with_first,
)
from tunec.schemas.terms import DataFormat
from tunec.targets.llamafactory.packages import WRITTEN
from tunec.targets.rows import TRAINING_DATA, evaluates, has_images, is_supervised, loaded_parts

FOLDER: Final = "llamafactory"
"""The folder of the target's files, relative to the root of a bundle."""
INFO: Final = "dataset_info.json"
_PARSER: Final = "llamafactory 0.9.3 to 0.9.5 data/parser.py `get_dataset_list`"
_LOADER: Final = "llamafactory 0.9.3 to 0.9.5 data/loader.py `_load_single_dataset`"
_MOST: Final = 100
_TRAIN: Final = ("train", *(f"train_{number}" for number in range(2, _MOST)))
_EVALUATION: Final = "evaluation"
_LOCAL, _HUB, _SUBSET = "file_name", "hf_hub_url", "subset"


# ── the names in the YAML ────────────────────────────────────────────────────────────────────────


def _names(plan: Plan) -> str:
    """A name for each data set; a name that occurs twice would be loaded once."""
    return ",".join(_TRAIN[: len(training_data(plan))])


NAMES: Final = (
    constant("dataset_dir", FOLDER, f"{_PARSER}: DATA_CONFIG"),
    derived("dataset", _names, f"{_PARSER}; {INFO} says what each is"),
    constant("eval_dataset", _EVALUATION, f"{_PARSER}; {INFO} says what it is", when=evaluates),
    derived(
        "media_dir",
        lambda plan: posixpath.dirname(plan.data.train) or ".",
        "llamafactory 0.9.3 to 0.9.5 data/converter.py `_find_medias`",
        since=WRITTEN,
        when=lambda plan: has_images(plan) and data_kind(plan.data.train) == "file",
    ),
)


def is_explained(found: Mapping[str, Json]) -> bool:
    """Whether a dataset_info.json of tunec beside the YAML describes the names."""
    return found.get("dataset_dir") == FOLDER


# ── what they mean ───────────────────────────────────────────────────────────────────────────────

_CHAT: Final[Mapping[str, Json]] = {
    "formatting": "sharegpt",
    "columns": {"messages": "messages"},
    "tags": {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
        "system_tag": "system",
        "observation_tag": "tool",
    },
}
_PAIRS: Final[Mapping[str, Json]] = {
    "formatting": "alpaca",
    "ranking": True,
    "columns": {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"},
}


_FORMATS: Final[Mapping[DataFormat | None, Mapping[str, Json]]] = {
    None: _CHAT,
    "sharegpt": {"formatting": "sharegpt", "columns": {"messages": "conversations"}},
    "alpaca": {
        "formatting": "alpaca",
        "columns": {"prompt": "instruction", "query": "input", "response": "output"},
    },
}
"""The description of each record format. Stage `sft` applies a chat template to every text.

The tags of ShareGPT are the program's defaults, which hold where a set has no block of tags: in a
block, a tag that is left out is None, and a conversation with that speaker is dropped (llamafactory
0.9.3 to 0.9.5 data/parser.py `DatasetAttr.join`).
"""


def _columns(plan: Plan) -> Mapping[str, Json]:
    """The columns of samples: those of a format, or the texts `prompt`, `chosen` and `rejected`."""
    if not is_supervised(plan):
        return _PAIRS
    if plan.data.format is not None:
        return _FORMATS.get(plan.data.format, {})
    images = {"images": "images"} if has_images(plan) else {}
    return {**_CHAT, "columns": {"messages": "messages", **images}}


def records(plan: Plan) -> tuple[Record, ...]:
    """The records that the columns below accept: llamafactory 0.9.3 to 0.9.5 data/converter.py."""
    if plan.data.format == "alpaca":
        return (Record(("instruction", "input", "output"), "text"),)  # each is looked up
    if is_supervised(plan):
        said = plan.data.format
        return (FORMATS["messages" if said is None or said not in _FORMATS else said],)
    return (Record(("prompt", "chosen", "rejected"), "text"),)


def _place(path: str) -> Mapping[str, Json]:
    """The location of a data set: a local path relative to the folder of the file, or a name."""
    if data_kind(path) == "name":
        said = chosen(path)
        return {_HUB: said.path, **({} if said.config is None else {_SUBSET: said.config})}
    is_whole = path.startswith(("/", "~"))
    return {_LOCAL: path if is_whole else posixpath.relpath(path, FOLDER)}


def _described(plan: Plan, path: str, split: str = "train", most: int = 0) -> Mapping[str, Json]:
    return {
        **_place(path),
        "split": with_first(chosen(path).split or split, most),
        **_columns(plan),
    }


def _part(said: Mapping[str, Any]) -> tuple[str, str | None, str | None]:
    """What `load_dataset` is given of a data set."""
    if _HUB in said:
        return said[_HUB], said.get(_SUBSET), said.get("split")
    local = str(said[_LOCAL])
    found = posixpath.normpath(posixpath.join(FOLDER, local))
    path = found if data_kind(found) == data_kind(local) else f"./{found}"
    return path, said.get(_SUBSET), said.get("split")


def _path(said: Mapping[str, Any], usual: str = "train") -> str:
    return data_name(*_part(said), usual)


def _write_train(plan: Plan) -> Mapping[str, Json]:
    return {
        name: _described(plan, path, most=most)
        for name, (path, most) in zip(_TRAIN, limited_data(plan), strict=False)
    }


def _read_train(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return loaded_parts(_part(found[name]) for name in _TRAIN if name in found)


def _write_evaluation(plan: Plan) -> Mapping[str, Json]:
    """The evaluation data; a split of its own if it is part of the training data."""
    path = str(plan.data.evaluation)
    split = usual_split(path, training_data(plan)) if data_kind(path) == "name" else "train"
    return {**_write_train(plan), _EVALUATION: _described(plan, path, split)}


def _read_evaluation(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if _EVALUATION not in found:
        return {}
    said = found[_EVALUATION]
    trained = [_path(found[name]) for name in _TRAIN if name in found]
    return {"data.evaluation": _path(said, usual_split(_path(said), trained))}


def _write_format(plan: Plan) -> Mapping[str, Json]:
    return _write_train(plan) if plan.data.format in _FORMATS else {}


def _read_format(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The one format of all data sets; images beside messages do not change it."""
    said = [_explained(each) for each in found.values()]
    kinds = {repr(_explained(each)): name for name, each in _FORMATS.items()}
    names = {kinds.get(repr(each), "") for each in said}
    return {"data.format": names.pop()} if len(names) == 1 and "" not in names else {}


def _explained(said: Mapping[str, Any]) -> tuple[Json, ...]:
    columns = {key: each for key, each in said["columns"].items() if key != "images"}
    return said.get("formatting"), sorted(columns.items()), sorted(said.get("tags", {}).items())


def _is_info(document: Json) -> bool:
    """Whether tunec wrote the file: a user's file has many data sets of other names."""
    if not isinstance(document, dict) or "train" not in document:
        return False
    known = all(name in _TRAIN or name == _EVALUATION for name in document)
    return known and all(isinstance(each, dict) and "columns" in each for each in document.values())


DATASET_INFO: Final = File(
    name=INFO,
    format="json",
    entries=(
        Entry(_TRAIN, TRAINING_DATA, _write_train, _read_train, _LOADER),
        Entry(
            (_EVALUATION, *_TRAIN),
            ("data.evaluation",),
            _write_evaluation,
            _read_evaluation,
            _LOADER,
            when=evaluates,
        ),
        Entry(
            (*_TRAIN, _EVALUATION),
            ("data.format",),
            _write_format,
            _read_format,
            "llamafactory 0.9.3 to 0.9.5 data/converter.py; data/parser.py `DatasetAttr`",
            when=is_supervised,
        ),
    ),
    recognise=_is_info,
)
