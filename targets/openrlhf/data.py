"""Rows of OpenRLHF's flags for the data: what is joined, and how much of it is taken."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import Entry, Json, same
from tunec.schemas.data_paths import chosen, data_name, usual_split
from tunec.schemas.frozen import replace
from tunec.targets.openrlhf.packages import SOURCE
from tunec.targets.rows import row

_BLEND: Final = f"{SOURCE} datasets/utils.py `blending_datasets`"
_FLAGS: Final = f"{SOURCE} cli/train_sft.py, cli/train_dpo.py"
_ALL: Final = 1_000_000_000
_SETS, _SPLIT, _MOST = "data.dataset", "data.dataset_split", "data.max_samples"
_UNLIMITED: Final = 1_000_000
"""The limit of a file that names none."""


def _write_sets(plan: Plan) -> Mapping[str, Json]:
    """The data sets, and the one split that is taken of each; other parts are refused."""
    sets = [chosen(each) for each in training_data(plan)]
    splits = {each.split for each in sets}
    if len(splits) > 1 or any(each.config for each in sets):
        return {_SETS: ",".join(training_data(plan))}  # which is refused
    (split,) = splits
    told = {} if split is None else {_SPLIT: split}
    return {_SETS: ",".join(each.path for each in sets), **told}


def _sets(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The data sets; a folder after `@`, or a share of each, has no slot value."""
    names = tuple(each.strip() for each in str(found[_SETS]).split(","))
    if any("@" in each for each in names) or found.get("data.dataset_probs"):
        return {}
    first, *more = (data_name(each, None, found.get(_SPLIT)) for each in names)
    return {"data.train": first, "data.more": tuple(more)}


def _write_evaluation(plan: Plan) -> Mapping[str, Json]:
    """The evaluation data with its split: a file only has train, and DPO would look for test."""
    name, steps = plan.data.evaluation, plan.schedule.evaluation_steps
    if name is None or steps is None:
        return {}
    split = chosen(name).split or usual_split(name, training_data(plan))
    tested = {
        "eval.dataset": str(replace(chosen(name), split=None)),
        "eval.split": split,
        "eval.steps": steps,
    }
    return {**_write_sets(plan), **tested}


def _evaluation(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The evaluation; without steps it is once an epoch, whose steps depend on the data."""
    name, steps = found.get("eval.dataset"), found.get("eval.steps", -1)
    if not name:
        return {"data.evaluation": None, "schedule.evaluation_steps": None}
    trained = _sets(found) if _SETS in found else {}
    names = [trained["data.train"], *trained["data.more"]] if trained else []
    said = data_name(name, None, found.get("eval.split"), usual_split(name, names))
    return {"data.evaluation": said, **({"schedule.evaluation_steps": steps} if steps > 0 else {})}


def _write_most(plan: Plan) -> Mapping[str, Json]:
    """How many are taken at most: of one data set, or without a limit."""
    if not plan.data.limits:
        return {_MOST: _ALL}
    return {_MOST: plan.data.limits[0]} if not plan.data.more else {}


def _read_most(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The limit of one data set; of several joined, no slot holds that of all."""
    most, names = found.get(_MOST), str(found.get(_SETS, "")).split(",")
    if not isinstance(most, int) or most >= _UNLIMITED:
        return {"data.limits": ()}
    return {"data.limits": (most,)} if len(names) == 1 else {}


def data(length: int) -> tuple[Entry, ...]:
    """The rows of data, for a program that by default cuts at `length` tokens."""
    return (
        row(
            (_SETS, _SPLIT, "data.dataset_probs"),
            ("data.train", "data.more"),
            _write_sets,
            _sets,
            _BLEND,
        ),
        row(
            ("eval.dataset", "eval.split", "eval.steps", _SETS, _SPLIT, "data.dataset_probs"),
            ("data.evaluation", "schedule.evaluation_steps"),
            _write_evaluation,
            _evaluation,
            f"{_FLAGS}; {_BLEND}",
            absent=_evaluation({}),
        ),
        row(
            (_MOST, _SETS),
            ("data.limits",),
            _write_most,
            _read_most,
            f"{_BLEND}; cli/train_sft.py: the first of each, and of all; absent, a million",
            absent={"data.limits": ()},
            beside=(_SETS,),
        ),
        same("data.max_len", "data.sequence", f"{SOURCE} datasets", default=length),
        same(
            "ds.packing_samples",
            "data.packing",
            f"{SOURCE} models/actor.py `Actor.forward`: those of a micro batch, joined",
            default=False,
        ),
    )
