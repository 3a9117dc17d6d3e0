"""Checkpoints at stage 3 hold no weights that anything else can load."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_GATHER: Final = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
_ALSO: Final = (
    "zero_optimization.gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
)
"""The same by the field's own name, which pydantic takes too, and by its old one."""
_SAVES: Final = ("save_strategy", "save_steps", "save_total_limit", "load_best_model_at_end")


def _check(run: Run) -> Iterator[Finding]:
    stage, gather = stage_of(run), run.effective("deepspeed", _GATHER)
    if stage.value != 3 or stage.place is None or gather.value is not False:
        return
    if run.said("deepspeed", *_ALSO):
        return
    saves = run.said("trainer", *_SAVES)
    strategy = run.said("trainer", "save_strategy")
    if run.value("adapter.kind", "none") != "none" or run.of("peft"):
        return
    if strategy is not None and strategy.value in ("no", False):
        return
    if gather.place is None and saves is None:
        return
    where = gather.place or stage.place
    edit = None if where.document.is_view else where.document.added(_GATHER, True)
    yield Finding(
        "checkpoints of stage 3 hold shards only: the 16-bit weights are not gathered on save",
        (
            where.label("weights stay in shards"),
            *also(saves if gather.place is None else stage.place),
        ),
        (
            f"stage3_gather_16bit_weights_on_model_save is false ({gather.by})",
            "zero_to_fp32.py recovers the weights from the shards, from_pretrained cannot",
        ),
        "write stage3_gather_16bit_weights_on_model_save: true in zero_optimization"
        if where.document.kind != "accelerate"
        else "write zero3_save_16bit_model: true",
        Fix((edit,), "unsafe") if edit and gather.place is None else None,
    )


RULE = Rule(
    name="weights-not-gathered-on-save",
    severity="warning",
    consequence="save",
    consumers=(
        "deepspeed",
        "transformers",
    ),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `save_model`: "
            "stage3_gather_16bit_weights_on_model_save=false. Saving the full checkpoint instead"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 accelerator.py `get_state_dict`: ValueError, Cannot get "
            "16bit model weights"
        ),
    ),
    check=_check,
)
