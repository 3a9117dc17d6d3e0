"""What a run asks of ZeRO, and whether saving at stage 3 gathers the shards."""

from collections.abc import Iterable, Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.place import Place, also
from tunec.compiler.lints.rule import Finding, keys


def zero_keys(*names: str) -> tuple[str, ...]:
    """Keys below zero_optimization, as a rule names what it reads."""
    return keys("deepspeed", *(f"zero_optimization.{name}" for name in names))


STAGE: Final = zero_keys("stage")
OFFLOADS_OPTIMIZER: Final = zero_keys("offload_optimizer.device", "cpu_offload")
"""What offloads the optimizer, the second by its older name."""


def stage_of(run: LintContext) -> Effective:
    """The ZeRO stage of the run, as it will be."""
    return run.effective("deepspeed", "zero_optimization.stage")


def said_in(run: LintContext, keys: Iterable[str]) -> Iterator[Place]:
    """Keys below zero_optimization that a document says, in the order of the keys."""
    for key in keys:
        yield from run.each("deepspeed", f"zero_optimization.{key}")


_GATHER: Final = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
_ALSO: Final = (
    "zero_optimization.gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
)
"""Other spellings of `_GATHER`: the field's own name, which pydantic takes too, and its old one."""
_SAVES: Final = ("save_strategy", "save_steps", "save_total_limit", "load_best_model_at_end")


def ungathered(run: LintContext, message: str, label: str, note: str) -> Finding | None:
    """A finding where a trainer saves at stage 3 and leaves the shards apart.

    Silent where nobody saves, and where the key stands under another of its names.
    """
    stage, gather = stage_of(run), run.effective("deepspeed", _GATHER)
    if stage.value != 3 or stage.place is None or gather.value is not False:
        return None
    saving, strategy = run.said("trainer", *_SAVES), run.said("trainer", "save_strategy")
    if run.said("deepspeed", *_ALSO) or (strategy and strategy.value in ("no", False)):
        return None
    if gather.place is None and saving is None:
        return None
    where = gather.place or stage.place
    edit = None if where.document.is_view else where.document.added(_GATHER, True)
    return Finding(
        message,
        (where.label(label), *also(saving if gather.place is None else stage.place)),
        (f"stage3_gather_16bit_weights_on_model_save is false ({gather.by})", note),
        "write stage3_gather_16bit_weights_on_model_save: true in zero_optimization"
        if where.document.kind != "accelerate"
        else "write zero3_save_16bit_model: true",
        Fix((edit,), "unsafe") if edit and gather.place is None else None,
    )
