"""Learning rates over the steps of a run, from the library's own schedules."""

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers import get_scheduler

from tunec.compiler.consumers.refusal import Refused, stage


def rates(question: Mapping[str, Any]) -> dict[str, Any]:
    """The learning rate of each optimizer step.

    In: `schedule` (a name of SchedulerType), `learning_rate`, `warmup_steps`, `steps` (of the whole
    run), `schedule_arguments` (lr_scheduler_kwargs). Out: `version`, `refused`, `rates`, one per
    step.
    """
    answer: dict[str, Any] = {"version": transformers.__version__, "refused": None, "rates": []}
    try:
        return answer | {"rates": _rates(question)}
    except Refused as refused:
        return answer | {"refused": refused.told()}


def _rates(question: Mapping[str, Any]) -> list[float]:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=question["learning_rate"])
    with stage("schedule"):
        schedule = get_scheduler(
            question["schedule"],
            optimizer=optimizer,
            num_warmup_steps=question.get("warmup_steps", 0),
            num_training_steps=question["steps"],
            scheduler_specific_kwargs=question.get("schedule_arguments") or {},
        )
    found = []
    for _ in range(question["steps"]):
        found.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    return found
