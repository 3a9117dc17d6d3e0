"""The required fields of a spec, from files and command line: model, method, data, hardware."""

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.derived_cards import config_in
from tunec.compiler.frontend.names import is_written_as_path
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.neighbours import catalogue_model
from tunec.compiler.resolve import catalogued
from tunec.compiler.translate.intents import Values
from tunec.schemas.hardware.catalogue import UnknownName, cluster

FieldPath = tuple[str, ...]
Fields = Mapping[FieldPath, Any]
"""Values of a spec's fields by path."""

MODEL: Final = ("model",)
CONFIG: Final = ("model", "config")
METHOD: Final = ("method",)
HARDWARE: Final = ("hardware",)
DATA: Final = ("data", "train")
REWARDS: Final = ("objective", "grpo", "rewards")
_SMALL: Final = "llama-3.2-1b"
_LARGE: Final = "h100"
_NEEDED: Final[Fields] = {
    MODEL: _SMALL,
    METHOD: {"lora": {}},
    HARDWARE: _LARGE,
    DATA: "train.jsonl",
    REWARDS: ["accuracy_reward"],
}
"""The required fields with placeholders for planning the rest: a small model on large devices, for
which every layout fits."""


class SpecOptions(Struct, frozen=True):
    """Options of the command line for a spec, besides the files."""

    model: str | None = None
    hardware: str | None = None
    method: str | None = None


class Foundation(Struct, frozen=True):
    """The fields that tunec cannot decide."""

    fields: Fields
    """The known fields, and None for missing ones."""
    missing: Fields
    """The missing fields, with placeholders."""

    @property
    def is_whole(self) -> bool:
        """Whether all fields for decisions are known; data and rewards are passed on."""
        return self.missing.keys() <= {DATA, REWARDS}

    def measured(self) -> Fields:
        """The fields of a spec that can be planned."""
        whole = {each[:1] if each == CONFIG else each: to for each, to in self.missing.items()}
        return {**self.fields, **whole}


def foundation(known: Values, environment: Environment, beside: SpecOptions) -> Foundation:
    """The fields as the files set them, or else the command line."""
    method = {} if "adapter.kind" in known else _said(METHOD, beside.method)
    data = {} if "data.train" in known else _said(DATA, None)
    is_rewarded = known.get("objective.kind") == "grpo" and not known.get("objective.rewards")
    rewards = _said(REWARDS, None) if is_rewarded else {}
    fields = {
        **_model(known.get("model.path"), environment, beside),
        **method,
        **data,
        **rewards,
        **_said(HARDWARE, beside.hardware or _hardware(known)),
    }
    missing = {
        path: _NEEDED[path[:1]] if path == CONFIG else _NEEDED[path] for path in _open(fields)
    }
    if HARDWARE in missing:
        missing[HARDWARE] = _stand_in(known)
    return Foundation(fields, missing)


def _said(path: FieldPath, value: Any) -> Fields:
    return {path: value}


def _open(fields: Fields) -> list[FieldPath]:
    found = [path for path, value in fields.items() if value is None]
    model = fields.get(MODEL)
    lacks_config = isinstance(model, Mapping) and model.get("config") is None
    return [*found, *([CONFIG] if lacks_config else [])]


def _model(name: str | None, environment: Environment, beside: SpecOptions) -> Fields:
    """The weights as the files name them, with the architecture if it is known."""
    told = name or beside.model
    if told is None or _is_catalogued(told):
        return {MODEL: told}
    like = environment.model or catalogue_model(told)
    is_described = beside.model is not None or PurePath(told).is_absolute()
    is_elsewhere = is_described and not _tells_itself(Path(told))
    if is_written_as_path(told) and not is_elsewhere:
        return {MODEL: told}
    if like is None:
        return {MODEL: {"path": told, "config": None}}
    card = None if is_written_as_path(beside.model or "") else like.card
    config = _config(beside.model) if card is None else card.config
    return {MODEL: {"path": told, "config": config, "stored_dtype": like.stored_dtype}}


def _config(model: str | None) -> str | None:
    """The file with the config of a model that is named by its directory or by that file."""
    if model is None or not Path(model).is_dir():
        return model
    return str(config_in(Path(model)) or f"{model}/config.json")


def _tells_itself(path: Path) -> bool:
    """Whether the model's own config is there; that of a folder on another machine is not."""
    return path.is_file() or config_in(path) is not None


def _is_catalogued(name: str) -> bool:
    try:
        catalogued(name)
    except LookupError:
        return False
    return True


def _counts(known: Values) -> tuple[int, int]:
    """The nodes, and the devices on each, as far as files set them."""
    nodes = known.get("devices.nodes") or 1
    return nodes, known.get("devices.per_node") or known.get("parallel.world", nodes) // nodes or 1


def _hardware(known: Values) -> str | None:
    """The devices that files name; None if they name none, or unknown ones."""
    model = known.get("devices.model")
    return None if model is None else _cluster(model, *_counts(known))


def _stand_in(known: Values) -> str:
    return _cluster(_LARGE, *_counts(known)) or f"{_LARGE}-x1"


def _cluster(device: str, nodes: int, per_node: int) -> str | None:
    name = f"{device}-x{per_node}" + (f"-n{nodes}" if nodes > 1 else "")
    try:
        cluster(name)
    except UnknownName:
        return None
    return name
