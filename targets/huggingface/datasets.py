"""The data of TRL's scripts: a data set by name, or local files by a data set card beside them.

The scripts call `datasets.load_dataset(dataset_name)` and use one split to train on and one to
evaluate on. They load a name on the Hub or a directory, but not a file. For files tunec writes a
card, `dataset/README.md`, whose header names the files of each split: `load_dataset` of that
directory reads them. The script is started in the directory above that of the target's files. The
paths in a card are relative to the card's own directory, all others to where the script is started.
"""

import posixpath
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import yaml

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.rendering import render_yaml
from tunec.compiler.target import ALWAYS, Cannot, Entry, File, Json, derived
from tunec.schemas.data_paths import BUILDERS, chosen, data_kind, data_name, usual_split
from tunec.targets.huggingface.packages import TRL

FOLDER: Final = "dataset"
"""The card's directory, beside the script's file."""
_SCRIPT: Final = "trl scripts/utils.py `ScriptArguments`, before 0.12 commands/cli_utils.py"
_MIXTURE: Final = "trl 0.22.0 to 1.16.0 scripts/utils.py `DatasetMixtureConfig`"
_CARD: Final = (
    "datasets 2.19.2 to 5.2.0 load.py `LocalDatasetModuleFactory`, before 4.0 "
    "`LocalDatasetModuleFactoryWithoutScript`: `configs` in the header of README.md"
)
_NOT_LOADED: Final = "trl 0.8.6 to 1.16.0 scripts/sft.py: one data set, with a split to evaluate on"
_TRAIN: Final = ("data.train", "data.more")
_ALL: Final = (*_TRAIN, "data.evaluation")


def _is_loaded_by_name(plan: Plan) -> bool:
    """Whether `load_dataset` takes the path as it is, and finds the evaluation data in it too."""
    data = plan.data
    is_named = data_kind(data.train) in ("name", "directory") and not data.more
    evaluation = data.evaluation
    return is_named and (
        evaluation is None or usual_split(evaluation, training_data(plan)) == "test"
    )


def _is_configured(plan: Plan) -> bool:
    return _is_loaded_by_name(plan) and chosen(plan.data.train).config is not None


def _is_split(plan: Plan) -> bool:
    return _is_loaded_by_name(plan) and chosen(plan.data.train).split is not None


def needs_card(plan: Plan) -> bool:
    """Whether a card names the files, which must be of one kind for `load_dataset`."""
    train, test = training_data(plan), plan.data.evaluation
    paths = train if test is None else (*train, test)
    builders = {_builder(path) for path in paths}
    return not _is_loaded_by_name(plan) and len(builders) == 1 and None not in builders


_ALIKE: Final[tuple[set[str], ...]] = (set(), {"json"}, {"parquet"})
"""The readers that may be mixed. Others give columns of other types, which cannot be joined: text
from .csv is a `large_string` and from .json a `string` (datasets 5.2.0 with pandas 3)."""


def _is_mixed(plan: Plan) -> bool:
    """Whether the script loads each part separately and joins them, without evaluation data."""
    data = plan.data
    if not data.more or data.evaluation is not None or needs_card(plan):
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
    return BUILDERS.get(PurePosixPath(path).suffix.lower()) if kind != "name" else None


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
    return {"data.train": train, "data.more": (), "data.evaluation": test if evaluates else None}


def _write_mixture(plan: Plan) -> Mapping[str, Json]:
    return {"datasets": [_loaded(path) for path in training_data(plan)]}


def _loaded(path: str) -> Mapping[str, Json]:
    """The arguments of `load_dataset` for a part; the default split is `train`."""
    if data_kind(path) == "file":
        return {"path": _builder(path), "data_files": path}
    said = chosen(path)
    told = {"path": said.path, "name": said.config, "split": said.split}
    return {key: each for key, each in told.items() if each is not None}


def is_whole(part: Json) -> bool:
    """Whether a part of a mixture is a whole file or split; no slot can hold less."""
    if not isinstance(part, dict) or part.keys() - {"path", "name", "data_files", "split"}:
        return False
    return "data_files" not in part or part.get("split") in (None, "train")


def _named(part: Mapping[str, Any]) -> str:
    if "data_files" in part:
        return str(part["data_files"])
    return data_name(part["path"], part.get("name"), part.get("split"))


def _read_mixture(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The parts of a mixture, if each is whole."""
    parts = found.get("datasets")
    if not parts or not isinstance(parts, list) or not all(map(is_whole, parts)):
        return {}
    first, *more = map(_named, parts)
    return {"data.train": first, "data.more": tuple(more)}


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
            _ALL,
            _write_name,
            _read_name,
            f"{_SCRIPT}: `load_dataset(dataset_name)[dataset_test_split]`",
            absent=((ALWAYS, {"data.evaluation": None}),),
            when=_is_loaded_by_name,
            package=TRL,
        ),
        derived(
            "dataset_name", lambda _: f"{target}/{FOLDER}", _CARD, when=needs_card, package=TRL
        ),
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
            ("data.train", "data.more"),
            _write_mixture,
            _read_mixture,
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


# ── the card ─────────────────────────────────────────────────────────────────────────────────────


def _from_card(path: str, card: str) -> str:
    """A path relative to the directory of the card."""
    is_relative = not path.startswith(("/", "~")) and "://" not in path
    above = "../" * len(card.split("/"))
    found = posixpath.normpath(f"{above}{path}") if is_relative else path
    if data_kind(path) != "directory":
        return found
    return posixpath.join(found, _ALL_OF_IT if path.endswith("/") else _ALL_BELOW)


_ALL_OF_IT: Final = "**"
_ALL_BELOW: Final = "**/*"
"""Patterns of all files of a directory, whose path has a slash at its end, or has none."""


def _from_script(path: str, card: str) -> str:
    """A card's path relative to where the script is started."""
    if "://" in path:
        return path
    found = posixpath.normpath(posixpath.join(card, path))
    if found.endswith(f"/{_ALL_BELOW}"):
        found = found.removesuffix(f"/{_ALL_BELOW}")
        return found if data_kind(found) == "directory" else f"./{found}"
    return found.removesuffix(_ALL_OF_IT) if found.endswith(f"/{_ALL_OF_IT}") else found


def _row(card: str) -> Entry:
    """The row for the files of each split of the first configuration; repeats are kept."""

    def write(plan: Plan) -> Mapping[str, Json]:
        test = plan.data.evaluation
        splits = {"train": training_data(plan), "test": () if test is None else (test,)}
        files = [
            {"split": split, "path": _alone([_from_card(path, card) for path in paths])}
            for split, paths in splits.items()
            if paths
        ]
        return {"configs": [{"config_name": "default", "data_files": files}]}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        files = found["configs"][0]["data_files"]
        paths = {each["split"]: _paths(each["path"], card) for each in files}
        train, *more = paths["train"]
        test = paths.get("test", (None,))
        evaluates = {"data.evaluation": test[0]} if len(test) == 1 else {}
        return {"data.train": train, "data.more": tuple(more), **evaluates}

    return Entry(("configs",), _ALL, write, read, _CARD, package=TRL)


def _alone(paths: list[str]) -> Json:
    """A single path as it is, several as a list, in which a path may be repeated."""
    return paths if len(paths) > 1 else paths[0]


def _paths(said: Json, card: str) -> tuple[str, ...]:
    """The paths of a card's split, relative to where the script is started."""
    return tuple(_from_script(each, card) for each in (said if isinstance(said, list) else [said]))


_FENCE: Final = "---\n"


def _render(values: Mapping[str, Json], header: Sequence[str]) -> str:
    """A README.md whose YAML header stands between two lines of dashes."""
    return f"{_FENCE}{render_yaml(values, header)}{_FENCE}"


def _parse(text: str) -> Json:
    """The header of a card. Raises ValueError if the text has none."""
    before, fence, rest = text.partition(_FENCE)
    header, end, _ = rest.partition(_FENCE)
    if before.strip() or not fence or not end:
        raise ValueError("a card begins with a header between two lines of dashes")
    try:
        return yaml.safe_load(header)
    except yaml.YAMLError as fault:
        raise ValueError("the header is no YAML") from fault


def _is_card(document: Json) -> bool:
    if not isinstance(document, dict) or not isinstance(document.get("configs"), list):
        return False
    return all(isinstance(each, dict) and "data_files" in each for each in document["configs"])


_CACHE: Final = """\
# datasets finds what it cached by the card alone, so that other files need another cache
files="$(find -L {files} -type f -printf '%p %s %T@\\n' 2> /dev/null | sort | cksum || true)"
export HF_DATASETS_CACHE="{usual}/${{files%% *}}"
"""
"""datasets 2.19.2 to 5.2.0 load.py `LocalDatasetModuleFactory.get_module`: the hash is of the
card's patterns, and neither of what they match nor of the folder; config.py `HF_DATASETS_CACHE`."""
_USUAL_CACHE: Final = (
    "${HF_DATASETS_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-${HOME}/.cache}/huggingface}/datasets}"
)


def _cache_of_its_own(values: Mapping[str, Json], card: str) -> str:
    """Lines that choose a cache by the names, sizes and times of the card's local files."""
    splits = values["configs"][0]["data_files"]
    files = [each for split in splits for each in _paths(split["path"], card)]
    local = [shlex.quote(each) for each in files if "://" not in each]
    return _CACHE.format(usual=_USUAL_CACHE, files=" ".join(local)) if local else ""


def card_of(target: str, script: Callable[[Plan], bool], part_of: str = "") -> File:
    """The card among a target's files, if the plan has the script's file; see `File`."""
    return File(
        name=f"{FOLDER}/README.md",
        format="text",
        entries=(_row(f"{target}/{FOLDER}"),),
        recognise=_is_card,
        when=lambda plan: script(plan) and needs_card(plan),
        render=_render,
        parse=_parse,
        part_of=part_of,
        prepares=lambda values: _cache_of_its_own(values, f"{target}/{FOLDER}"),
    )
