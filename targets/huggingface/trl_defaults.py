"""What TRL's configs do where a file is silent, which is not what TrainingArguments does."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, fixed, in_no_plan
from tunec.schemas.frozen import replace
from tunec.targets.huggingface.arithmetic import CHECKPOINTING, PRECISION
from tunec.targets.huggingface.packages import TRL

_SOURCE: Final = "trl 0.9.6 to 1.16.0 trainer/sft_config.py, dpo_config.py, grpo_config.py, from "
_SOURCE_BASE: Final = f"{_SOURCE}0.29 trainer/base_config.py"
_BF16: Final = f"{_SOURCE_BASE}: `bf16` is on from 0.19 unless `fp16` is"
_RECOMPUTES: Final = f"{_SOURCE_BASE}: `gradient_checkpointing` is on from 0.22"
_MODE: Final = "activation_checkpointing.mode"


def _with_bf16(entry: Entry) -> Entry:
    """The row of `bf16` and `fp16` from 0.19 on: bf16 unsaid is what fp16 is not."""

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        if found.get("bf16") is not None or found.get("fp16") not in (None, False):
            return entry.read(found)
        return entry.read({**found, "bf16": True})

    slots = read({})
    absent = {slot: slots[slot] for slot in entry.slots}
    return replace(
        entry, read=read, since="0.19", absent=((ALWAYS, absent),), package=TRL, source=_BF16
    )


_FLAGS: Final = tuple(each for each in PRECISION if "bf16" in each.keys)

TRL_PRECISION: Final = (
    *(replace(each, until="0.19", package=TRL) for each in _FLAGS),
    *map(_with_bf16, _FLAGS),
    *(each for each in PRECISION if each not in _FLAGS),
)
TRL_CHECKPOINTING: Final = (
    *(
        replace(each, absent=()) if _MODE in each.slots and each.absent else each
        for each in CHECKPOINTING
    ),
    Entry(
        ("gradient_checkpointing", "activation_checkpointing"),
        (_MODE,),
        lambda _: {},
        lambda _: {},
        _RECOMPUTES,
        absent=((ALWAYS, {_MODE: "none"}), ("0.22", {_MODE: "layer"})),
        when=in_no_plan,
        package=TRL,
    ),
)
"""The last row says only what absence means: the others count the releases of transformers."""


def moving_activations(since: str, source: str) -> tuple[Entry, Entry]:
    """The key that moves to host RAM what a backward pass needs; before it nothing does."""
    key, slot = "activation_offloading", "activation_checkpointing.offload"

    def write(plan: Plan) -> Mapping[str, Any]:
        return {key: True} if plan.activation_checkpointing.offload else {}

    never = fixed(slot, value=False, source=source, until=since, package=TRL)
    return never, Entry(
        (key,),
        (slot,),
        write,
        lambda found: {slot: found[key] is True},
        source,
        since,
        absent=((ALWAYS, {slot: False}),),
        package=TRL,
    )
