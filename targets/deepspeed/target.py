"""The deepspeed target: one file for `deepspeed.initialize`."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.counting import Counting, count_accumulations
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Cannot, Dialect, File, Target, fixed
from tunec.schemas.frozen import replace
from tunec.targets.deepspeed.config import DEEPSPEED, ds_config
from tunec.targets.deepspeed.reader import PACKAGE, PLAIN
from tunec.targets.deepspeed.scheduler import is_known
from tunec.targets.delegation import BY_CLUSTER, FITTED, by_launcher

_SCRIPT = "the training script says it: DeepSpeed is given a model, parameters and data"

_BY_SCRIPT = (
    *("model.path", "model.family", "model.kind", "model.parameters", "model.trust_remote_code"),
    "model.published",
    *("data.train", "data.more", "data.limits", "data.references", "data.evaluation"),
    *("data.format", "data.chat_template", "data.loss_on"),
    *("data.samples", "data.sequence"),
    *("data.packing", "data.images", "data.image_width", "data.image_height", "data.image_tokens"),
    *("data.vision_tokens", "data.frames", "attention.implementation"),
    *("quantization.format", "quantization.double", "quantization.compute"),
    *("quantization.storage", "adapter.kind", "adapter.rank", "adapter.alpha", "adapter.dropout"),
    *("adapter.targets", "adapter.parameters", "adapter.bias", "adapter.rslora", "adapter.dora"),
    "adapter.merge",
    *("adapter.also_train", "adapter.frozen", "adapter.trainable_parameters", "precision.tf32"),
    *("batch.evaluation", "schedule.epochs", "schedule.save_steps"),
    *("schedule.keep_checkpoints", "schedule.evaluation_steps", "runtime.seed", "runtime.output"),
    *("runtime.dataloader_workers", "runtime.dataloader_pin_memory", "runtime.report_to"),
    "runtime.neftune_alpha",
)
_BY_LAUNCH = (
    *("devices.nodes", "devices.per_node", "devices.visible"),
    *("precision.deprecated_fp16", "parallel.world"),
    *("launch.launcher", "launch.environment", "launch.script"),
)
_UNTOUCHED = "it has no effect in this plan"
_OBJECTIVES = ("objective.", "generation.", "ppo.", "evaluation.", "loss.")

_CANNOT: Final = {
    **BY_CLUSTER,
    **FITTED,
    **{slot: Cannot(_SCRIPT) for slot in _BY_SCRIPT},
    **{slot: by_launcher() for slot in _BY_LAUNCH},
    "parallel.data": Cannot("processes, less those that share a sequence, are its width"),
    "activation_checkpointing.mode": Cannot(
        "the training script turns it on: the block activation_checkpointing only configures "
        "deepspeed.checkpointing for models that call it"
    ),
    **{
        f"activation_checkpointing.{name}": Cannot(_SCRIPT)
        for name in ("reentrant", "segment", "gap", "offload")
    },
    "parallel.sequence": Cannot(
        "sequence parallelism needs attention that the script registers", loses=True, harmless=(1,)
    ),
    "states.weights": Cannot("the engine casts the module to the compute dtype"),
    "states.trainable": Cannot("the engine casts the module to the compute dtype"),
    "states.master_weights": Cannot("with fp32 parameters there is nothing to copy"),
    "states.optimizer": Cannot("the moments follow from the optimizer and the dtype of its copies"),
    "states.autocast": Cannot("the engine casts the module instead", loses=True, harmless=(False,)),
    "batch.global": Cannot("micro batch, accumulation and processes say it"),
    "schedule.steps": Cannot(_SCRIPT),
    "schedule.arguments": Cannot(
        "its schedules have no such arguments (runtime/lr_schedules.py)", loses=True, harmless=((),)
    ),
    **{
        slot: Cannot("the training script builds the schedule, as it knows the number of steps")
        for slot in ("schedule.kind", "schedule.warmup_steps")
    },
    "schedule.warmup_share": Cannot("its schedules count the steps of a warm-up"),
    "schedule.estimated_steps": Cannot(_SCRIPT),
    **{
        f"optimizer.{name}": Cannot("the training script builds this optimizer")
        for name in ("name", "kernel", "learning_rate", "beta1", "beta2", "epsilon", "weight_decay")
    },
    **{
        f"precision.{name}": Cannot("it matters with fp16 alone")
        for name in (*("initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale"),)
    },
    **{slot: Cannot(_UNTOUCHED) for slot in SLOTS if slot.startswith("fsdp.")},
    **{slot: Cannot(_SCRIPT) for slot in SLOTS if slot.startswith(_OBJECTIVES)},
    **{
        f"zero.{name}": Cannot(_UNTOUCHED)
        for name in (
            *("offload_optimizer", "offload_param", "pin_memory", "overlap_comm"),
            *("contiguous_gradients", "reduce_scatter", "reduce_bucket", "allgather_bucket"),
            *("prefetch_bucket", "persistence_threshold", "max_live_parameters"),
            *("max_reuse_distance", "sub_group_size", "gather_on_save"),
            *("hpz_partition", "leaf_modules"),
        )
    },
}


def _check(plan: Plan, _: Version) -> Iterator[Diagnostic]:
    """Warn if the number of steps is missing and the schedule or its warm-up needs it."""
    if not is_known(plan):
        share = plan.schedule.warmup_share
        needy = plan.schedule.kind if share is None else f"a warm-up of {share:.0%}"
        yield Diagnostic(
            "schedule-left-to-script",
            "note",
            f"ds_config.json has no scheduler: {needy} needs the number of steps",
            (Label("how many steps there are is not known", path="data"),),
            help="give data.samples or train.steps, or build the schedule in the training script",
        )


def _counting(dialect: Dialect, _: Mapping[str, Any]) -> Counting:
    """Gradient accumulation continues across epochs, and the end of an epoch takes no step.

    deepspeed 0.14.5 to 0.19.8 runtime/engine.py `is_gradient_accumulation_boundary` counts the
    micro batches of the whole run; runtime/dataloader.py `DeepSpeedDataLoader`.
    """
    return Counting(f"deepspeed {dialect['']}", count_accumulations)


def _file() -> File:
    file = ds_config(PLAIN)
    engine = fixed("parallel.engine", "deepspeed", "the file is DeepSpeed's", package=PACKAGE)
    return replace(file, entries=(*file.entries, engine))


TARGET: Final = Target(
    name="deepspeed",
    package=PACKAGE,
    supported=DEEPSPEED.supported,
    latest=DEEPSPEED.latest,
    releases=DEEPSPEED.releases,
    files=(_file(),),
    cannot=_CANNOT,
    requires={"parallel.engine": "deepspeed"},
    check=_check,
    counting=_counting,
    verify="tunec.targets.deepspeed.verify",
)
