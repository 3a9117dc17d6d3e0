"""Trainers whose own first words clash with the `--local_rank` of DeepSpeed's launcher.

deepspeed 0.14.5 to 0.19.8 launcher/launch.py `main`.
"""

from collections.abc import Mapping
from typing import Any

from tunec.compiler.ir.plan import Draft
from tunec.schemas.spec import Spec
from tunec.targets.scripts.refusals import Refusal


def without_rank_flag(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Pin torchrun for such a trainer on DeepSpeed, if no launcher is requested."""
    if spec.launcher is not None or "parallel" not in draft.groups:
        return {}
    return {"launch.launcher": "torchrun"} if draft.parallel.engine == "deepspeed" else {}


def refusing_rank_flag(first: str, source: str) -> Refusal:
    """The refusal of DeepSpeed's launcher; `first` is the first word of the command line."""
    return Refusal(
        ("launch.launcher",),
        f"its command line begins with {first}, where DeepSpeed's launcher puts a flag",
        lambda plan: plan.launch.launcher == "deepspeed",
        f"{source}; deepspeed 0.14.5 to 0.19.8 launcher/launch.py",
        "set `launcher: torchrun`",
    )
