"""The rows of data sets: which part of each is read, and how many of its first samples.

A name on the Hub is read as `name:subset#samples`, and of its splits `train`. Another split is that
of a data set with a name of its own, which `custom_dataset_info` describes.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, limited_data, training_data
from tunec.compiler.target import Json, derived
from tunec.schemas.data_paths import Chosen, chosen, data_kind, data_name, first_of, usual_split
from tunec.targets.rows import TRAINING_DATA, row, training_parts

DATA: Final = "ms-swift 4.0.4 to 4.6.0 arguments/base_args/data_args.py `DataArguments`"
_SYNTAX: Final = "dataset/dataset_syntax.py `DatasetSyntax.parse`"
_INFO: Final = "dataset/register.py `register_dataset_info`: a file, or its text"
DESCRIBED: Final = "custom_dataset_info"
_NAME, _HUB, _SUBSETS, _SPLITS = "dataset_name", "hf_dataset_id", "subsets", "split"
_TRAIN: Final = "train"
_EVALUATION: Final = "evaluation"


# ── what is written ──────────────────────────────────────────────────────────────────────────────


def _evaluated(plan: Plan) -> Chosen | None:
    """The evaluation data with its split, if there is any."""
    if plan.data.evaluation is None:
        return None
    said = chosen(plan.data.evaluation)
    usual = usual_split(plan.data.evaluation, training_data(plan))
    return Chosen(said.path, said.config, said.split or (None if usual == _TRAIN else usual))


def has_split_without_name(plan: Plan) -> bool:
    """Whether another split than `train` is needed of data that is not on the Hub."""
    part = _evaluated(plan)
    return part is not None and bool(part.split) and data_kind(part.path) != "name"


def _named(part: Chosen, name: str) -> str:
    """How a file names a part: by a name of its own, if it is not of the split `train`."""
    return name if part.split else str(part)


def _trained(plan: Plan) -> Iterable[tuple[str, Chosen, int]]:
    """The names that the training data has if it needs some, its parts and their limits."""
    for number, (path, most) in enumerate(limited_data(plan), 1):
        yield (_TRAIN if number == 1 else f"{_TRAIN}_{number}"), chosen(path), most


def _description(name: str, part: Chosen) -> str:
    config = {_SUBSETS: [part.config]} if part.config else {}
    return json.dumps([{_NAME: name, _HUB: part.path, **config, _SPLITS: [part.split]}])


def _write_descriptions(plan: Plan) -> Mapping[str, Json]:
    """The descriptions of all parts whose split is not `train`, each a text of its own.

    Of five in one text `register_dataset_info` logs the keys, which a list does not have.
    """
    parts = [(name, part) for name, part, _ in _trained(plan)]
    evaluated = _evaluated(plan)
    parts += [] if evaluated is None else [(_EVALUATION, evaluated)]
    texts = [_description(name, part) for name, part in parts if part.split]
    return {DESCRIBED: texts} if texts else {}


def _write_training(plan: Plan) -> Mapping[str, Json]:
    names = [(_named(part, name), most) for name, part, most in _trained(plan)]
    every = [f"{name}#{most}" if most else name for name, most in names]
    return {"dataset": every, **_write_descriptions(plan)}


def write_evaluation(plan: Plan) -> Mapping[str, Json]:
    """The data to evaluate on, if there is any."""
    part = _evaluated(plan)
    return {} if part is None else {"val_dataset": [_named(part, _EVALUATION)]}


def _write_evaluation(plan: Plan) -> Mapping[str, Json]:
    return {**_write_training(plan), **write_evaluation(plan)}


# ── what is read ─────────────────────────────────────────────────────────────────────────────────


def _is_part(name: str) -> bool:
    """Whether a name has parts without a slot: the hub, or several subsets."""
    hub, _, _ = name.lower().partition("::")
    path = chosen(name).path.replace(":\\", "").replace(":/", "")
    return "#" in name or hub in ("hf", "ms") or ":" in path


def limited_name(name: str) -> tuple[str, int]:
    """A name without its number of samples, and that number; 0: it has none."""
    path, _, most = name.rpartition("#")
    return (path, int(most)) if path and most.isdecimal() else (name, 0)


def _listed(value: Json) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    return tuple(map(str, names)) if isinstance(names, list) else ()


def described(found: Mapping[str, Json]) -> Mapping[str, Chosen] | None:
    """The parts that have names of their own; None, if a file or another form describes some."""
    try:
        every = [said for text in _listed(found.get(DESCRIBED)) for said in json.loads(text)]
        parts = {said[_NAME]: _described(said) for said in every}
    except (ValueError, TypeError, KeyError):
        return None
    known = {name: part for name, part in parts.items() if part is not None}
    return known if known.keys() == parts.keys() else None


def _described(said: Mapping[str, Any]) -> Chosen | None:
    """A part on the Hub of one split, which is read as it is."""
    subsets, splits = said.get(_SUBSETS, []), said.get(_SPLITS, [_TRAIN])
    is_one = len(splits) == 1 and len(subsets) < 2 and all(isinstance(s, str) for s in subsets)
    is_whole = _HUB in said and not said.keys() - {_NAME, _HUB, _SUBSETS, _SPLITS}
    return Chosen(said[_HUB], *(subsets or [None]), *splits) if is_one and is_whole else None


def part_of(name: str, parts: Mapping[str, Chosen]) -> Chosen:
    """The part that a name without its number of samples stands for."""
    return parts.get(name) or chosen(name)


def _read_training(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The data sets by path or name, unless they are mixed by shares."""
    seen = [limited_name(each) for each in _listed(found.get("dataset"))]
    parts = described(found)
    if not seen or parts is None or found.get("interleave_prob"):
        return {}
    if any(_is_part(name) for name, _ in seen if name not in parts):
        return {}
    return training_parts([_limited(part_of(name, parts), most) for name, most in seen])


def _limited(part: Chosen, most: int) -> tuple[str, int]:
    """The path of a part, and the number of its first samples that are taken; 0 is all."""
    split, own = first_of(part.split)
    return data_name(part.path, part.config, split), min(filter(None, (own, most)), default=0)


def _read_evaluation(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The name of the evaluation set; a share that is split off has no slot value."""
    names, parts = _listed(found.get("val_dataset")), described(found)
    if not names:
        return {} if found.get("split_dataset_ratio") else {"data.evaluation": None}
    if len(names) > 1 or parts is None or (names[0] not in parts and _is_part(names[0])):
        return {}
    part = part_of(names[0], parts)
    trained = (limited_name(each)[0] for each in _listed(found.get("dataset")))
    usual = usual_split(
        data_name(part.path, part.config, None), (str(part_of(each, parts)) for each in trained)
    )
    return {"data.evaluation": data_name(part.path, part.config, part.split or _TRAIN, usual)}


DATA_SETS: Final = (
    row(
        ("dataset", "interleave_prob", DESCRIBED),
        TRAINING_DATA,
        _write_training,
        _read_training,
        f"{DATA}; dataset/loader.py `load_dataset`; {_SYNTAX}; {_INFO}",
    ),
    derived(
        "dataset_shuffle",
        lambda plan: False if any(plan.data.limits) else None,
        "ms-swift 4.0.4 to 4.6.0 dataset/utils.py `sample_dataset`: else so many are drawn at "
        "random; `train_dataloader_shuffle` still shuffles what is trained on",
    ),
    row(
        ("val_dataset", "split_dataset_ratio", "dataset", DESCRIBED),
        ("data.evaluation",),
        _write_evaluation,
        _read_evaluation,
        f"{DATA}: without either nothing is evaluated",
        absent={"data.evaluation": None},
        beside=("dataset", DESCRIBED),
    ),
)
