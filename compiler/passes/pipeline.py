"""The pipeline: every pass, in order."""

from typing import Final

from tunec.compiler.passes.choose_adapter import choose_adapter
from tunec.compiler.passes.choose_attention import choose_attention
from tunec.compiler.passes.choose_loss import choose_loss
from tunec.compiler.passes.choose_objective import choose_objective
from tunec.compiler.passes.choose_optimizer import choose_optimizer
from tunec.compiler.passes.choose_precision import choose_precision
from tunec.compiler.passes.choose_quantization import choose_quantization
from tunec.compiler.passes.contract import Pass
from tunec.compiler.passes.fit.fit import GROUPS as FIT_GROUPS
from tunec.compiler.passes.fit.fit import fit
from tunec.compiler.passes.plan_launch import plan_launch
from tunec.compiler.passes.resolve_data import resolve_data
from tunec.compiler.passes.resolve_model import resolve_model
from tunec.compiler.passes.schedule_training import schedule_training
from tunec.compiler.passes.select_devices import select_devices
from tunec.compiler.passes.set_runtime import set_runtime

PIPELINE: Final[tuple[Pass, ...]] = (
    Pass("resolve-model", (), ("model",), resolve_model),
    Pass("select-devices", (), ("devices",), select_devices),
    Pass("resolve-data", (), ("data",), resolve_data),
    Pass("choose-precision", (), ("precision",), choose_precision),
    Pass("choose-quantization", ("precision",), ("quantization",), choose_quantization),
    Pass("choose-attention", ("precision",), ("attention",), choose_attention),
    Pass("choose-adapter", (), ("adapter",), choose_adapter),
    Pass(
        "choose-objective",
        ("model", "data", "adapter"),
        ("objective", "generation"),
        choose_objective,
    ),
    Pass("choose-loss", ("model", "adapter", "objective"), ("loss",), choose_loss),
    Pass(
        "choose-optimizer",
        ("model", "precision", "adapter", "objective"),
        ("optimizer",),
        choose_optimizer,
    ),
    Pass(
        "fit",
        (
            *("devices", "data", "precision", "quantization", "attention", "adapter"),
            *("objective", "generation", "loss", "optimizer"),
        ),
        FIT_GROUPS,
        fit,
    ),
    Pass("schedule-training", ("model", "data", "batch"), ("schedule",), schedule_training),
    Pass("set-runtime", ("devices", "precision"), ("runtime",), set_runtime),
    Pass("plan-launch", ("model", "devices", "precision", "parallel"), ("launch",), plan_launch),
)
