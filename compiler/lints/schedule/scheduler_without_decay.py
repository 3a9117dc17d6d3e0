"""DeepSpeed's WarmupLR beside a trainer that would let the rate fall."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    kind = run.said("deepspeed", "scheduler.type")
    asked = run.effective("trainer", "lr_scheduler_type")
    if kind is None or kind.value != "WarmupLR" or asked.source != "default":
        return
    yield Finding(
        f"WarmupLR never lets the rate fall; the trainer's own schedule is {asked.value}",
        (kind.label("used"),),
        (
            "after warm-up the rate stays at warmup_max_lr to the end",
            f"lr_scheduler_type is left out: {asked.by} is {asked.value}",
        ),
        "remove the scheduler, or write WarmupDecayLR with total_num_steps",
    )


RULE = Rule(
    name="scheduler-without-decay",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed", "transformers"),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/lr_schedules.py `WarmupLR`: and then fix at max lr",
        "transformers 5.23.0 integrations/deepspeed.py `deepspeed_optim_sched`",
        "hiyouga/LlamaFactory#3100",
    ),
    check=_check,
)
