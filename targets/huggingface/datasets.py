"""The data of TRL's scripts: a data set by name, or local files by a data set card beside them.

The scripts call `datasets.load_dataset(dataset_name)` and use one split to train on and one to
evaluate on. They load a name on the Hub or a directory, but not a file. For files tunec writes a
card, `dataset/README.md`, whose header names the files of each split: `load_dataset` of that
directory reads them. The script is started in the directory above that of the target's files. The
paths in a card are relative to the card's own directory, all others to where the script is started.
"""

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, limited_data, training_data
from tunec.compiler.target import ALWAYS, Cannot, Entry, Json, derived
from tunec.schemas.data_paths import (
    builder_of,
    chosen,
    data_kind,
    data_name,
    usual_split,
    with_first,
)
from tunec.targets.huggingface.packages import TRL
from tunec.targets.rows import TRAINING_DATA, loaded_parts

FOLDER: Final = "dataset"
"""The card's directory, beside the script's file."""
_SCRIPT: Final = "trl scripts/utils.py `ScriptArguments`, before 0.12 commands/cli_utils.py"
_MIXTURE: Final = "trl 0.22.0 to 1.16.0 scripts/utils.py `DatasetMixtureConfig`"
CARD: Final = (
    "datasets 2.19.2 to 5.2.0 load.py `LocalDatasetModuleFactory`, before 4.0 "
    "`LocalDatasetModuleFactoryWithoutScript`: `configs` in the header of README.md"
)
_NOT_LOADED: Final = "trl 0.8.6 to 1.16.0 scripts/sft.py: one data set, with a split to evaluate on"
ALL_DATA: Final = (*TRAINING_DATA, "data.evaluation")


def _is_loaded_by_name(plan: Plan) -> bool:
    """Whether `load_dataset` takes the path as it is, and finds the evaluation data in it too."""
    data = plan.data
    is_named = data_kind(data.train) in ("name", "directory") and not data.more
    evaluation = data.evaluation
    return (
        is_named
        and not _is_sliced(plan)
        and (evaluation is None or usual_split(evaluation, training_data(plan)) == "test")
    )


def _is_sliced(plan: Plan) -> bool:
    """Whether less than a split is trained or evaluated on: the script knows whole splits."""
    named = (*training_data(plan), plan.data.evaluation or "")
    return any(plan.data.limits) or any("[" in (chosen(each).split or "") for each in named)


def _is_configured(plan: Plan) -> bool:
    return _is_loaded_by_name(plan) and chosen(plan.data.train).config is not None


def _is_split(plan: Plan) -> bool:
    return _is_loaded_by_name(plan) and chosen(plan.data.train).split is not None


def needs_card(plan: Plan) -> bool:
    """Whether a card names the files, which must be of one kind for `load_dataset`."""
    train, test = training_data(plan), plan.data.evaluation
    paths = train if test is None else (*train, test)
    builders = {_builder(path) for path in paths}
    is_alike = len(builders) == 1 and None not in builders
    return is_alike and not _is_loaded_by_name(plan) and not _is_sliced(plan)


_ALIKE: Final[tuple[set[str], ...]] = (set(), {"json"}, {"parquet"})
"""The readers that may be mixed. Others give columns of other types, which cannot be joined: text
from .csv is a `large_string` and from .json a `string` (datasets 5.2.0 with pandas 3)."""


def _is_mixed(plan: Plan) -> bool:
    """Whether the script loads each part separately and joins them, without evaluation data."""
    data = plan.data
    if not (data.more or _is_sliced(plan)) or data.evaluation is not None or needs_card(plan):
        return False
    paths = training_data(plan)
    files = {_builder(each) for each in paths if data_kind(each) == "file"}
    return files in _ALIKE and not any(map(_is_address, paths))


def _is_address(path: str) -> bool:
    return data_kind(path) == "url"


def _builder(path: str) -> str | None:
    """The module of `datasets` that reads a path; None for a name or an unknown suffix."""
    kind = data_kind(path)
    if kind == "directory":
        return "any"
    return builder_of(path) if kind != "name" else None


def _is_loaded(plan: Plan) -> bool:
    return _is_loaded_by_name(plan) or needs_card(plan)


def _is_not_loaded(plan: Plan) -> bool:
    return not _is_loaded(plan) and not _is_mixed(plan)


# ── the script's file ────────────────────────────────────────────────────────────────────────────


def _write_name(plan: Plan) -> Mapping[str, Json]:
    said, evaluation = chosen(plan.data.train), plan.data.evaluation
    told = {
        "dataset_name": said.path,
        "dataset_config": said.config,
        "dataset_train_split": said.split,
        "dataset_test_split": evaluation and (chosen(evaluation).split or "test"),
    }
    return {key: each for key, each in told.items() if each is not None}


def _read_name(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Read the data set by name, and whether it is evaluated on; a card gives the rest.

    Without a strategy, a split to evaluate on does not decide: the script names one by default.
    """
    name = found.get("dataset_name")
    if name is None or PurePosixPath(str(name)).name == FOLDER:
        return {}
    strategy = found.get("eval_strategy", found.get("evaluation_strategy"))
    is_named = found.get("dataset_test_split") not in (None, "train")
    evaluates = is_named if strategy is None else strategy not in ("no", False)
    config = found.get("dataset_config")
    train = data_name(name, config, found.get("dataset_train_split"))
    test = data_name(name, config, found.get("dataset_test_split"), "test")
    held_out = {"data.evaluation": test if evaluates else None}
    return {"data.train": train, "data.more": (), "data.limits": (), **held_out}


def _write_mixture(plan: Plan) -> Mapping[str, Json]:
    return {"datasets": [_loaded(*each) for each in limited_data(plan)]}


def _loaded(path: str, most: int) -> Mapping[str, Json]:
    """The arguments of `load_dataset` for a part; the default split is `train`."""
    said = chosen(path)
    is_file = data_kind(path) == "file"
    told = {
        "path": _builder(path) if is_file else said.path,
        "data_files": path if is_file else None,
        "name": said.config,
        "split": with_first(said.split, most),
    }
    return {key: each for key, each in told.items() if each is not None}


def _is_simple(part: Json) -> bool:
    """Whether a part of a mixture has no keys that no slot stands for."""
    return isinstance(part, dict) and not part.keys() - {"path", "name", "data_files", "split"}


def read_mixture(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The parts of a mixture, if slots can hold each."""
    parts = found.get("datasets")
    if not isinstance(parts, list) or not all(map(_is_simple, parts)):
        return {}
    return loaded_parts(
        (str(each.get("data_files") or each["path"]), each.get("name"), each.get("split"))
        for each in parts
    )


def _read_share(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """No evaluation data, unless a share of the training data is split off, which no slot holds."""
    return {} if found.get("test_split_size") else {"data.evaluation": None}


def data_of(target: str) -> tuple[Entry, ...]:
    """Rows for the script's data; `target` is the folder of the script's file."""
    return (
        Entry(
            (
                *("dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split"),
                *("eval_strategy", "evaluation_strategy"),
            ),
            ALL_DATA,
            _write_name,
            _read_name,
            f"{_SCRIPT}: `load_dataset(dataset_name)[dataset_test_split]`",
            absent=((ALWAYS, {"data.evaluation": None}),),
            when=_is_loaded_by_name,
            package=TRL,
        ),
        derived("dataset_name", lambda _: f"{target}/{FOLDER}", CARD, when=needs_card, package=TRL),
        *(
            derived(
                key,
                lambda plan: "train" if plan.data.evaluation is None else None,
                "trl 0.8.6 to 0.11.4 commands/scripts/sft.py and dpo.py: the split to evaluate on "
                "is taken out of the data set even where nothing is evaluated",
                since=since,
                until=until,
                package=TRL,
            )
            for key, since, until in (
                ("dataset_test_name", None, "0.9"),
                ("dataset_test_split", "0.9", "0.12"),
            )
        ),
        Entry(
            ("datasets",),
            TRAINING_DATA,
            _write_mixture,
            read_mixture,
            _MIXTURE,
            since="0.22",
            when=_is_mixed,
            package=TRL,
        ),
        Entry(
            ("test_split_size",),
            ("data.evaluation",),
            lambda _: {},
            _read_share,
            _MIXTURE,
            since="0.22",
            absent=((ALWAYS, {"data.evaluation": None}),),
            when=_is_mixed,
            package=TRL,
        ),
    )


def _never_said(slot: str, when: Callable[[Plan], bool], until: str | None = None) -> Entry:
    nothing = dict[str, Json]()
    return Entry(
        (), (slot,), lambda _: nothing, lambda _: nothing, _NOT_LOADED, None, until, (), when, TRL
    )


NOT_LOADED: Final = (
    _never_said("data.train", lambda plan: _is_not_loaded(plan) and _is_address(plan.data.train)),
    _never_said("data.more", lambda plan: _is_not_loaded(plan) and bool(plan.data.more)),
    _never_said("data.more", _is_mixed, until="0.22"),
    _never_said("data.limits", _is_mixed, until="0.22"),
    _never_said("data.limits", lambda plan: _is_not_loaded(plan) and any(plan.data.limits)),
    _never_said("data.train", _is_configured, until="0.13"),
    _never_said("data.train", _is_split, until="0.9"),
    _never_said(
        "data.evaluation", lambda plan: _is_not_loaded(plan) and plan.data.evaluation is not None
    ),
)
"""Conditions under which no TRL script can load the data, for an optional file that is then left
out."""

CANNOT_LOAD: Final = {
    "data.train": Cannot(
        "the script loads a data set by its name, of which trl 0.13 is the first to take a "
        "configuration, and 0.9 a split; a directory; or files that a card names",
        loses=True,
        by=("data.more", "data.evaluation"),
    ),
    "data.limits": Cannot(
        "the script takes the first samples of a data set from trl 0.22 on, where nothing is "
        "evaluated on",
        loses=True,
        harmless=((),),
    ),
    "data.more": Cannot(
        "files are joined if all are read the same way: .json with .jsonl, .csv with .csv; names "
        "and directories are joined, with .json or .parquet files too, from trl 0.22 on, where "
        "nothing is evaluated on",
        loses=True,
        harmless=((),),
    ),
    "data.evaluation": Cannot(
        "the script takes a split of the data set that it trains on: files of one kind, or the "
        "name of one data set",
        loses=True,
        harmless=(None,),
        by=("data.more",),
    ),
}
"""Reasons why a target whose only file is for such a script cannot express some data."""
