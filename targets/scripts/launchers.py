"""Trainers whose own words come first, where DeepSpeed's launcher puts `--local_rank`.

deepspeed 0.14.5 to 0.19.8 launcher/launch.py `main`.
"""

from collections.abc import Mapping
from typing import Any

from tunec.compiler.ir.plan import Draft
from tunec.schemas.spec import Spec
from tunec.targets.scripts.refusals import Refusal


def without_rank_flag(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """What such a trainer needs beside DeepSpeed's engine if no launcher is requested."""
    if spec.launcher is not None or "parallel" not in draft.groups:
        return {}
    return {"launch.launcher": "torchrun"} if draft.parallel.engine == "deepspeed" else {}


def refusing_rank_flag(first: str, source: str) -> Refusal:
    """What it refuses; `first` is what its command line begins with."""
    return Refusal(
        ("launch.launcher",),
        f"its command line begins with {first}, where DeepSpeed's launcher puts a flag",
        lambda plan: plan.launch.launcher == "deepspeed",
        f"{source}; deepspeed 0.14.5 to 0.19.8 launcher/launch.py",
        "set `launcher: torchrun`",
    )
