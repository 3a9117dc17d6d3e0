"""The data set card of TRL's scripts: a README.md whose header names the files of each split."""

import posixpath
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import yaml

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.rendering import render_yaml
from tunec.compiler.target import Entry, File, Json
from tunec.schemas.data_paths import data_kind
from tunec.targets.huggingface.datasets import ALL_DATA, CARD, FOLDER, needs_card
from tunec.targets.huggingface.packages import TRL
from tunec.targets.rows import training_parts


def _from_card(path: str, card: str) -> str:
    """A path relative to the directory of the card."""
    is_relative = not path.startswith(("/", "~")) and "://" not in path
    above = "../" * len(card.split("/"))
    found = posixpath.normpath(f"{above}{path}") if is_relative else path
    if data_kind(path) != "directory":
        return found
    return posixpath.join(found, ALL_DATA_OF_IT if path.endswith("/") else ALL_DATA_BELOW)


ALL_DATA_OF_IT: Final = "**"
ALL_DATA_BELOW: Final = "**/*"
"""Patterns of all files of a directory, whose path has a slash at its end, or has none."""


def _from_script(path: str, card: str) -> str:
    """A card's path relative to where the script is started."""
    if "://" in path:
        return path
    found = posixpath.normpath(posixpath.join(card, path))
    if found.endswith(f"/{ALL_DATA_BELOW}"):
        found = found.removesuffix(f"/{ALL_DATA_BELOW}")
        return found if data_kind(found) == "directory" else f"./{found}"
    return found.removesuffix(ALL_DATA_OF_IT) if found.endswith(f"/{ALL_DATA_OF_IT}") else found


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
        return {**training_parts([(each, 0) for each in (train, *more)]), **evaluates}

    return Entry(("configs",), ALL_DATA, write, read, CARD, package=TRL)


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
