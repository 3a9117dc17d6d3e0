"""Rows whose adapters PEFT merges into the base on the device when the step is done."""

from collections.abc import Iterator
from typing import Final

from trace_models import Model
from trace_row import Combination

from tunec.compiler.ir.slots import Adapter
from tunec.schemas.frozen import replace

MERGED: Final = frozenset({"llama-3.2-1b", "mixtral-8x7b"})
"""Models with linear layers, and with experts in one tensor."""
_EXPERTS: Final = ("experts.gate_up_proj", "experts.down_proj")


def merged(model: Model) -> Iterator[Combination]:
    """LoRA and DoRA in both dtypes, packed bases, and beside the states that engines keep."""
    one = Combination(model.name, method="lora", sequence=512, checkpointed=True, merged=True)
    if model.kind == "moe":
        yield replace(one, targets=_EXPERTS)
        return
    for states in ("bf16", "bf16-adapters"):
        yield replace(one, states=states)
        yield replace(one, states=states, dora=True)
    for packed in (replace(one, method="qlora"), replace(one, method="int8")):
        yield packed
        yield replace(packed, states="kbit" if packed.method == "qlora" else "autocast")
    yield replace(one, engine="ddp", world=8)
    yield replace(one, states="mixed", engine="deepspeed", world=8, stage=2)


def adapter_of(row: Combination, plain: Adapter) -> Adapter:
    """The adapters of a row."""
    return replace(plain, dora=row.dora, merge="device" if row.merged else "never")
