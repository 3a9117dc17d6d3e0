"""Non-reentrant checkpointing over weights that are frozen, under ZeRO-3 of older releases."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.adapter.lora import has_adapter
from tunec.compiler.lints.checkpointing.asked import (
    recomputes,
    reentrant,
    reentrant_place,
)
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FAILS: Final = "deepspeed<0.19.3"
_NOT_BY_DEFAULT: Final = "transformers>=5"
_FORCES: Final = "trl>=0.28"
_WHY: Final = (
    "DeepSpeed before 0.19.3 takes frozen weights away again while a layer is recomputed: "
    "recomputed values have different metadata, of shape [0]"
)


def _check(run: Run) -> Iterator[Finding]:
    stage = run.slot("zero.stage")
    if stage is None or stage.value != 3 or not recomputes(run) or not has_adapter(run):
        return
    place, where = _not_reentrant(run), run.place(stage)
    if place is None or (_is_trl(place) and run.runs(_FORCES) is not False):
        return
    yield Finding(
        "non-reentrant checkpointing of a frozen base under ZeRO stage 3",
        (
            place.label("not reentrant"),
            *([where.label("stage 3", primary=False)] if where else []),
        ),
        (_WHY,),
        "set use_reentrant to true, use stage 2, or DeepSpeed 0.19.3",
    )


def _not_reentrant(run: Run) -> Place | None:
    """Where a file asks for the variant, or for recomputation where that is the variant."""
    place = reentrant_place(run)
    if place is None or place.value is False:
        return place
    is_default = place.path.rpartition(".")[2] not in ("use_reentrant", "use_reentrant_gc")
    is_known = run.runs(_FAILS) and run.runs(_NOT_BY_DEFAULT) and reentrant(run) is False
    return place if is_default and is_known and not _is_trl(place) else None


def _is_trl(place: Place) -> bool:
    return place.document.kind in TRL


RULE = Rule(
    name="non-reentrant-adapter-under-zero-3",
    severity="error",
    consequence="step",
    consumers=(_FAILS,),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.2 runtime/zero/partitioned_param_coordinator.py "
            "`release_sub_module`; 0.19.3 keeps what is frozen while a backward runs "
            "(deepspeedai/DeepSpeed#8148); run: CheckpointError with 0.14.5 and 0.18.9, none with "
            "0.19.8"
        ),
        "huggingface/transformers#47254 (deepspeed 0.19.2), huggingface/trl#2514 (0.15.3)",
        "transformers 5.0.0 `gradient_checkpointing_enable`: use_reentrant false where it is unset",
        "trl 0.28.0 to 1.16.0 trainer/sft_trainer.py, dpo_trainer.py: it is forced to True",
        "axolotl 0.8.1 to 0.19.0 `warn_qlora_zero3_w_use_reentrant` warns of it",
    ),
    check=_check,
)
