"""Rows of Unsloth's file: model and data."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import Json, fixed, same
from tunec.schemas.data_paths import is_local
from tunec.schemas.frozen import replace
from tunec.targets.rows import has_images, has_text_alone, length, row, unlimited
from tunec.targets.unsloth.packages import CONFIG, STUDIO

_DATA: Final = f"{CONFIG} `DataConfig`"
_TRAINING: Final = f"{CONFIG} `TrainingConfig`"
_NAME, _FILES = "data.dataset", "data.local_dataset"


def _write_data(plan: Plan) -> Mapping[str, Json]:
    """Write files and directories as a list, or one name; it cannot join data sets of the Hub."""
    parts = training_data(plan)
    if all(map(is_local, parts)):
        return {_FILES: list(parts)}
    return {_NAME: parts[0]} if len(parts) == 1 else {}


def _read_data(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The data; local files override a name."""
    local, name = found.get(_FILES), found.get(_NAME)
    if isinstance(local, list) and local:
        first, *more = map(str, local)
        return {"data.train": first, "data.more": tuple(more)}
    return {"data.train": name, "data.more": ()} if name else {}


MODEL: Final = (
    same("model", "model.path", f"{CONFIG} `Config`"),
    fixed("model.trust_remote_code", False, f"{STUDIO} `load_model`: trust_remote_code"),
)
DATA: Final = (
    row(
        (_NAME, _FILES),
        ("data.train", "data.more"),
        _write_data,
        _read_data,
        f"{_DATA}; {STUDIO} `load_and_format_dataset`",
    ),
    unlimited(f"{STUDIO} `load_and_format_dataset`: the command gives no slice"),
    fixed(
        "data.evaluation",
        None,
        f"{STUDIO} `_train_worker`: the command gives no eval_steps, and evaluates nothing",
    ),
    *length(
        "training.max_seq_length",
        2048,
        _TRAINING,
        f"{_TRAINING}; {STUDIO} `_train_worker`: max_length",
    ),
    same("training.packing", "data.packing", _TRAINING, default=False, when=has_text_alone),
    replace(
        fixed("data.packing", False, f"{STUDIO} `_train_worker`: with images, without packing"),
        when=has_images,
    ),
)
