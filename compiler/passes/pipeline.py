"""The pipeline: every pass, in order."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.passes.choose_adapter import choose_adapter
from tunec.compiler.passes.choose_attention import choose_attention
from tunec.compiler.passes.choose_evaluation import choose_evaluation
from tunec.compiler.passes.choose_loss import choose_loss
from tunec.compiler.passes.choose_objective import choose_objective
from tunec.compiler.passes.choose_optimizer import choose_optimizer
from tunec.compiler.passes.choose_precision import choose_precision
from tunec.compiler.passes.choose_quantization import choose_quantization
from tunec.compiler.passes.contract import Pass
from tunec.compiler.passes.fit.fit import GROUPS as FIT_GROUPS
from tunec.compiler.passes.fit.fit import fit
from tunec.compiler.passes.plan_job import plan_job
from tunec.compiler.passes.plan_launch import plan_launch
from tunec.compiler.passes.resolve_data import resolve_data
from tunec.compiler.passes.resolve_model import resolve_model
from tunec.compiler.passes.schedule_training import schedule_training
from tunec.compiler.passes.select_devices import select_devices
from tunec.compiler.passes.set_runtime import set_runtime
from tunec.compiler.passes.stage import Stage

PIPELINE: Final[tuple[Pass, ...]] = (
    Pass(
        "resolve-model",
        (),
        ("model",),
        resolve_model,
        ("model", "spec.task", "spec.objective", "versions"),
    ),
    Pass(
        "select-devices",
        (),
        ("devices",),
        select_devices,
        (
            *("selection", "cluster", "spec.devices.use"),
            *("spec.budget.gpu_memory", "spec.budget.host_memory"),
        ),
    ),
    Pass(
        "resolve-data",
        (),
        ("data",),
        resolve_data,
        ("model", "spec.data", "spec.method", "spec.objective", "lengths", "counted", "counting"),
    ),
    Pass(
        "choose-precision",
        (),
        ("precision",),
        choose_precision,
        (
            *("model", "selection.devices", "spec.precision", "spec.engine"),
            *("spec.method", "spec.objective", "versions"),
        ),
        heeds=("parallel.engine",),
    ),
    Pass(
        "choose-quantization",
        ("model", "precision"),
        ("quantization",),
        choose_quantization,
        ("selection.devices", "spec.method", "spec.engine", "versions", "tries_fsdp", "model"),
        heeds=("parallel.engine",),
        looks=("model.published", "precision.compute"),
    ),
    Pass(
        "choose-attention",
        ("precision",),
        ("attention",),
        choose_attention,
        ("model", "selection.weakest.device", "spec.attention"),
    ),
    Pass("choose-adapter", (), ("adapter",), choose_adapter, ("model", "spec.method", "versions")),
    Pass(
        "choose-objective",
        ("model", "data", "adapter"),
        ("objective", "generation", "ppo"),
        choose_objective,
        ("model", "critic", "spec.objective", "spec.batch", "spec.model_fields_set", "versions"),
        heeds=("batch.global",),
    ),
    Pass(
        "choose-evaluation",
        ("model", "data", "objective"),
        ("evaluation",),
        choose_evaluation,
        ("spec.evaluation",),
    ),
    Pass(
        "choose-loss",
        ("model", "adapter", "objective"),
        ("loss",),
        choose_loss,
        ("model", "selection.weakest.device", "versions"),
    ),
    Pass(
        "choose-optimizer",
        ("model", "devices", "precision", "adapter", "objective"),
        ("optimizer",),
        choose_optimizer,
        ("model", "spec.train", "spec.engine"),
    ),
    Pass(
        "fit",
        (
            *("devices", "data", "precision", "quantization", "attention", "adapter"),
            *("objective", "generation", "ppo", "evaluation", "loss", "optimizer"),
        ),
        FIT_GROUPS,
        fit,
    ),
    Pass(
        "schedule-training",
        (
            *("model", "devices", "data", "precision", "quantization", "attention", "adapter"),
            *("objective", "generation", "ppo", "evaluation", "loss", "optimizer", *FIT_GROUPS),
        ),
        ("schedule",),
        schedule_training,
    ),
    Pass(
        "set-runtime",
        ("devices", "precision"),
        ("runtime",),
        set_runtime,
        ("selection.node.host.cores", "spec.train", "spec.extra"),
        looks=("devices.per_node", "devices.capability", "precision.compute"),
    ),
    Pass(
        "plan-launch",
        ("model", "devices", "precision", "parallel"),
        ("launch",),
        plan_launch,
        ("spec.launcher", "spec.run", "starts_workers"),
        looks=(
            *("model.kind", "devices.visible", "devices.vendor", "precision.deprecated_fp16"),
            *("parallel.engine", "parallel.world", "parallel.sequence"),
        ),
    ),
    Pass(
        "plan-job",
        (
            *("model", "devices", "data", "precision", "quantization", "attention", "adapter"),
            *("objective", "generation", "ppo", "evaluation", "loss", "optimizer", *FIT_GROUPS),
            *("schedule", "runtime"),
        ),
        ("job",),
        plan_job,
    ),
)
"""Each pass with the groups that it reads, those that it decides, and its facts and pins."""


def _stages() -> Iterator[Stage]:
    """The pipeline in stages; most passes depend on few facts of a cluster, and share one stage."""
    at = [each.name for each in PIPELINE].index
    before, found = at("resolve-data"), at("fit")
    yield from (Stage((each,)) for each in PIPELINE[:before])
    yield Stage(PIPELINE[before:found])
    yield from (Stage((each,)) for each in PIPELINE[found:])


STAGES: Final = tuple(_stages())
"""The pipeline in stages: passes that depend only on a spec and a cluster's devices run
together."""
