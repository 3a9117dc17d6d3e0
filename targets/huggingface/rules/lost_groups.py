"""A schedule that counts groups of the optimizer which DeepSpeed has taken out."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.rows import Row, found, reads_of
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace

_ADAPTED: Final = Row(
    "trainer|ms-swift:deepspeed",
    "the schedule of adapters fails under DeepSpeed with torch 2.10",
    "ValueError: zip() argument 2 is longer than argument 1",
    "adapters have no weights without decay: DeepSpeed takes that empty group out, and the "
    "schedule still has a rate for it",
    "use torch 2.9, or name an optimizer and a scheduler in DeepSpeed's file",
    effective=("slot:adapter.kind=lora",),
)
_ROWS: Final = (
    _ADAPTED,
    replace(_ADAPTED, effective=(), beside=("(peft:r>0)",)),
    replace(_ADAPTED, when="ms-swift:deepspeed", effective=(), beside=("(tuner_type=lora)",)),
)
_NEEDED: Final = (("torch", "torch>=2.10"), ("transformers", "transformers<5"))
"""torch 2.10 optim/lr_scheduler.py zips strictly. transformers 4.57.1 trainer.py makes the schedule
of an optimizer with two groups; deepspeed 0.16.9 to 0.19.8 runtime/engine.py drops empty ones
(modelscope/ms-swift#8299, hiyouga/LlamaFactory#10144, OpenRLHF/OpenRLHF#1234)."""


@rule(
    "schedule-of-a-lost-group",
    "error",
    "step",
    consumers=("deepspeed", "ms-swift"),
    reads=reads_of(_ROWS),
)
def schedule_of_a_lost_group(run: LintContext) -> Iterator[Finding]:
    """Adapters under DeepSpeed with a torch whose schedules count groups."""
    is_told = all(run.runs(each) and run.release(name).is_named for name, each in _NEEDED)
    if is_told and run.said("deepspeed", "optimizer.type", "scheduler.type") is None:
        told = set()
        for each in found(_ROWS, run):
            at = each.labels[0].span
            if at not in told:
                told.add(at)
                yield each
