"""Non-reentrant checkpointing of an adapter's layers under ZeRO-3."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.checkpointing.asked import has_adapter, recomputes, reentrant_place
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_FORCES: Final = "trl>=0.28"
_TRL: Final = TRL


def _check(run: Run) -> Iterator[Finding]:
    stage = run.slot("zero.stage")
    place = reentrant_place(run)
    if stage is None or stage.value != 3 or place is None or place.value is not False:
        return
    if not recomputes(run) or not has_adapter(run):
        return
    where = run.place(stage)
    is_trl = place.document.kind in _TRL
    when: Consequence = "silent" if is_trl and run.runs(_FORCES) is not False else "step"
    yield Finding(
        "use_reentrant false with an adapter under ZeRO stage 3",
        (
            place.label("not reentrant"),
            *([where.label("stage 3", primary=False)] if where else []),
        ),
        (
            (
                "the layer is recomputed when its gathered weights are shards again: recomputed "
                "values have different metadata"
            ),
            *((f"TRL from {_FORCES[5:]} turns it to true, and warns",) if is_trl else ()),
        ),
        "set use_reentrant to true, or use stage 2",
        consequence=when,
    )


RULE = Rule(
    name="non-reentrant-adapter-under-zero-3",
    severity="warning",
    consequence="step",
    consumers=("deepspeed", "trl", "axolotl"),
    sources=(
        (
            "trl 0.28.0 to 1.16.0 trainer/sft_trainer.py, dpo_trainer.py: use_reentrant is forced "
            "to "
            "True; huggingface/trl#2514"
        ),
        (
            "axolotl 0.8.1 to 0.19.0 `warn_qlora_zero3_w_use_reentrant`: may result in a "
            "CheckpointError about recomputed values"
        ),
    ),
    check=_check,
)
