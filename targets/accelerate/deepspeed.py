"""Settings of DeepSpeed in accelerate.yaml, which are read if the file names no ds_config.json.

A plan's file names ds_config.json, which can express all of them. A file that was read without a
ds_config.json is written without one.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Documents, Entry, Found, Json, in_no_plan, on_deepspeed
from tunec.schemas.frozen import replace
from tunec.targets.accelerate.fsdp import fsdp_defaults
from tunec.targets.accelerate.packages import PACKAGE

NAME: Final = "accelerate.yaml"
_SECTION: Final = "deepspeed_config."
_FILE: Final = f"{_SECTION}deepspeed_config_file"
_PLUGIN: Final = "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`"
_TRUE: Final = "true"


def _whole(value: Json) -> Json:
    """A number from its text: the launcher converts values to text, the plugin text to numbers."""
    return int(value) if isinstance(value, str) else value


def _number(value: Json) -> Json:
    return float(value) if isinstance(value, str) else value


def _same(value: Json) -> Json:
    return value


def _is_true(value: Json) -> bool:
    """Whether a value is true by `str(value).lower() == "true"`, which does not accept `yes`."""
    return str(value).lower() == _TRUE


def _inline(name: str, slot: str, type_: Callable[[Json], Json], source: str = _PLUGIN) -> Entry:
    """The row of a key of the section.

    A text such as `auto` is filled in from a trainer's arguments.
    """
    key = _SECTION + name

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        if _FILE in found or key not in found or found[key] in ("auto", None):
            return {}
        return {slot: type_(found[key])}

    return Entry(
        (key, _FILE), (slot,), lambda _: {}, read, source, when=in_no_plan, package=PACKAGE
    )


def _written(entry: Entry) -> Entry:
    """The row for a file that names no ds_config.json."""
    key, (slot,) = entry.keys[0], entry.slots

    def write(plan: Plan) -> Mapping[str, Json]:
        return {key: plan[slot]}

    return replace(entry, keys=(key,), write=write, when=on_deepspeed)


_HALF: Final = ("bf16", "fp16")


def _is_half(plan: Plan) -> bool:
    return on_deepspeed(plan) and plan.precision.compute in _HALF


def _read_half(found: Mapping[str, Json]) -> Mapping[str, Any]:
    word = found.get("mixed_precision")
    is_here = found.get("distributed_type") == "DEEPSPEED" and word in _HALF
    return {"precision.compute": word} if is_here else {}


_PRECISION: Final = Entry(
    ("mixed_precision", "distributed_type"),
    ("precision.compute",),
    lambda plan: {"mixed_precision": plan.precision.compute, "distributed_type": "DEEPSPEED"},
    _read_half,
    "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.set_mixed_precision`",
    when=_is_half,
    package=PACKAGE,
)

INLINE: Final = (
    _inline("zero_stage", "zero.stage", _whole),
    _inline("offload_optimizer_device", "zero.offload_optimizer", _same),
    _inline("offload_param_device", "zero.offload_param", _same),
    _inline("zero3_save_16bit_model", "zero.gather_on_save", _is_true),
    _inline("gradient_accumulation_steps", "batch.accumulation", _whole),
    _inline("gradient_clipping", "optimizer.max_grad_norm", _number),
)
"""`offload_optimizer_nvme_path` and `offload_param_nvme_path` have no effect: utils/launch.py
`prepare_deepspeed_cmd_env` passes neither on, and the plugin uses the path `none`."""
ALONE: Final = (*map(_written, INLINE), _PRECISION)
"""The rows for a file that names no ds_config.json."""

_ABSENT: Final[Mapping[str, tuple[str, Any]]] = {
    "zero_stage": ("zero.stage", 2),
    "offload_optimizer_device": ("zero.offload_optimizer", "none"),
    "offload_param_device": ("zero.offload_param", "none"),
    "zero3_save_16bit_model": ("zero.gather_on_save", False),
}
"""Defaults of `DeepSpeedPlugin` for absent keys, equal from 0.30.1 to 1.15.0."""


def inline_defaults(documents: Documents) -> Iterator[Definition]:
    """accelerate's defaults for the section's absent keys, if DeepSpeed runs without its file."""
    found: Mapping[str, Found] = documents.get(NAME, {})
    kind = found.get("distributed_type")
    if kind is None or kind.value != "DEEPSPEED" or _FILE in found:
        return
    for name, (slot, value) in _ABSENT.items():
        if _SECTION + name not in found:
            reason = f"{_SECTION}{name} is absent: what {PACKAGE} then does"
            yield Definition(slot, value, Rank.CONSUMER, PACKAGE, reason)


def section_defaults(documents: Documents) -> Iterator[Definition]:
    """The defaults for the engine that the file names."""
    yield from inline_defaults(documents)
    yield from fsdp_defaults(documents)
