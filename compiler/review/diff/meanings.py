"""What a changed slot means for a user of the spec: one table for all slots."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from tunec.schemas.models.catalogue import original

Kind = Literal["breaking", "performance", "cosmetic"]
KINDS: Final[tuple[Kind, ...]] = ("breaking", "performance", "cosmetic")
"""Sorted from the most to the least severe."""


class Meaning(Struct, frozen=True):
    """The class of a changed slot, and why it matters."""

    kind: Kind
    why: str


_RESUME: Final = "a checkpoint of the old plan does not load into the new one"
_LEARNS: Final = "the run trains differently"
_NUMBERS: Final = "the numerical results of training change"

_PARTS: Final = Meaning("performance", "the same training, at another speed and memory")
_EFFECT: Final = Meaning("breaking", _LEARNS)
_STATE: Final = Meaning("breaking", _RESUME)
_ARITHMETIC: Final = Meaning("breaking", _NUMBERS)
_SURFACE: Final = Meaning("cosmetic", "neither the training nor its speed changes")

# Sources of what does not resume: optimizer state is loaded by shape and by the optimizer's keys
# (torch/optim/optimizer.py, `Optimizer.load_state_dict`). DeepSpeed 0.19.8, runtime/engine.py,
# `_load_zero_checkpoint` refuses another data parallel width ("Automatic adjustment of ZeRO's
# optimizer state partitioning with a new world size is not currently supported"); stage 3 keeps its
# state under `fp32_flat_groups`, stages 1 and 2 under `single_partition_of_fp32_groups`
# (checkpoint/constants.py), and each reads its own key alone. transformers 5.23, trainer.py,
# `_load_optimizer_and_scheduler` leaves all of it to DeepSpeed where DeepSpeed runs. accelerate
# 1.15.0, utils/fsdp_utils.py, `load_fsdp_optimizer`: full checkpoints are read from a file, sharded
# ones from a directory.
MEANINGS: Final[dict[str, Meaning]] = {
    "model": _EFFECT,
    "model.path": Meaning("breaking", "other weights are trained"),
    "model.trust_remote_code": _SURFACE,
    "model.published": _SURFACE,
    "devices": _PARTS,
    "devices.visible": _SURFACE,
    "data": _EFFECT,
    "objective": _EFFECT,
    "objective.reference": _PARTS,
    "generation": _EFFECT,
    "generation.engine": _PARTS,
    "generation.device_share": _PARTS,
    "ppo": _EFFECT,
    "evaluation": _SURFACE,
    "loss": _PARTS,
    "precision": _ARITHMETIC,
    "precision.deprecated_fp16": _SURFACE,
    "attention": _PARTS,
    "quantization": _ARITHMETIC,
    "adapter": _STATE,
    "adapter.alpha": _EFFECT,
    "adapter.dropout": _EFFECT,
    "adapter.rslora": _EFFECT,
    "optimizer": _EFFECT,
    "optimizer.name": _STATE,
    "optimizer.kernel": _PARTS,
    "parallel": _PARTS,
    "parallel.engine": _STATE,
    "parallel.world": _PARTS,
    "parallel.data": Meaning("breaking", "ZeRO checkpoints load at their own width only"),
    "parallel.tensor": _STATE,
    "states": _ARITHMETIC,
    "states.autocast": _ARITHMETIC,
    "zero": _PARTS,
    "zero.stage": Meaning("breaking", "a ZeRO checkpoint loads at its own stage only"),
    "fsdp": _PARTS,
    "fsdp.state_dict": _STATE,
    "activation_checkpointing": _PARTS,
    "batch": _PARTS,
    "batch.global": Meaning("breaking", "the effective batch changes, and with it the training"),
    "schedule": _EFFECT,
    "schedule.estimated_steps": _SURFACE,
    "schedule.log_steps": _SURFACE,
    "schedule.save_steps": _SURFACE,
    "schedule.keep_checkpoints": _SURFACE,
    "schedule.evaluation_steps": _SURFACE,
    "runtime": _SURFACE,
    "runtime.seed": _ARITHMETIC,
    "runtime.dataloader_workers": _PARTS,
    "runtime.dataloader_pin_memory": _PARTS,
    "launch": _SURFACE,
    "job": _SURFACE,
}
"""By slot, or by group for the slots of the group that are not listed."""


def meaning_of(slot: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Meaning:
    """The meaning of a changed slot between two plans. KeyError for a slot of an unknown group."""
    if slot == "zero.stage" and {old[slot], new[slot]} == {1, 2}:
        return _PARTS  # one class keeps the state of both: zero/stage_1_and_2.py
    if slot == "parallel.data" and not (old["zero.stage"] and new["zero.stage"]):
        return _PARTS  # without ZeRO each rank keeps the whole state
    if slot == "model.path" and original(old[slot]) == original(new[slot]):
        return Meaning("cosmetic", "the same weights, from another source")
    return MEANINGS.get(slot) or MEANINGS[slot.partition(".")[0]]


def worst(kinds: list[Kind]) -> Kind:
    """The most severe of several classes; "cosmetic" if there is none."""
    return min(kinds, key=KINDS.index, default="cosmetic")
