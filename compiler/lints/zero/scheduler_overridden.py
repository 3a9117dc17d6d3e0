"""The trainer's schedule is overridden by a scheduler section in DeepSpeed's file."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SAME: Final[Mapping[str, str]] = {
    "linear": "WarmupDecayLR",
    "constant_with_warmup": "WarmupLR",
    "cosine": "WarmupCosineLR",
}
"""transformers 5.23.0 docs, deepspeed.md "Scheduler"; deepspeed 0.19.8 runtime/lr_schedules.py."""


def _check(run: Run) -> Iterator[Finding]:
    section = run.said("deepspeed", "scheduler.type", "scheduler")
    asked = run.said("trainer", "lr_scheduler_type")
    if section is None or asked is None or not isinstance(asked.value, str):
        return
    kind = section.value if isinstance(section.value, str) else None
    if _SAME.get(asked.value) == kind:
        return
    yield Finding(
        f"lr_scheduler_type {asked.value} is overridden by DeepSpeed's {kind or 'scheduler'}",
        (asked.label("not used"), section.label("used", primary=False)),
        ("a section scheduler in DeepSpeed's file always wins, and nothing is compared",),
        "remove the section: the trainer then builds its own schedule",
    )


RULE = Rule(
    name="scheduler-overridden",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `deepspeed_optim_sched`",
        "hiyouga/LlamaFactory#3100, QwenLM/Qwen3#577",
    ),
    check=_check,
)
