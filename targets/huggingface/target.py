"""The huggingface target: the Trainer's arguments, the adapter, the model, and ds_config.json."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Cannot, Documents, File, Json, Target, on_deepspeed
from tunec.targets.deepspeed.config import DEEPSPEED, ds_config
from tunec.targets.deepspeed.reader import PACKAGE, TRAINER
from tunec.targets.delegation import BY_CLUSTER, FITTED, by_launcher
from tunec.targets.huggingface.adapter import ADAPTER_CONFIG
from tunec.targets.huggingface.arithmetic import CHECKPOINTING, KEPT_ON_THE_DEVICE, PRECISION
from tunec.targets.huggingface.counting import counting
from tunec.targets.huggingface.leaves import LEAVES
from tunec.targets.huggingface.loading import FROM_PRETRAINED
from tunec.targets.huggingface.methods import method_of
from tunec.targets.huggingface.model import ADAPTER, MODEL, QUANTIZATION, WIDENING, dtype_of, trust
from tunec.targets.huggingface.packages import (
    PEFT,
    PEFT_RELEASES,
    TRANSFORMERS,
    TRL,
    TRL_RELEASES,
    companions,
    schema_of,
)
from tunec.targets.huggingface.predictions import PREDICTIONS
from tunec.targets.huggingface.schedule import (
    EVALUATION,
    EVALUATION_AS_IT_LOGS,
    LENGTH,
    LOG_STEPS,
    LOGGING,
    SAVING,
    WARMUP,
)
from tunec.targets.huggingface.sft import SFT, SFT_CARD
from tunec.targets.huggingface.training import (
    BATCH,
    LEARNING_RATE,
    LOSS,
    OPTIMIZER,
    RUNTIME,
    optimizer_packages,
)
from tunec.targets.rows import on_fsdp
from tunec.targets.trainers import supervised

_TRAINING = (
    *BATCH,
    LEARNING_RATE,
    *OPTIMIZER,
    *LENGTH,
    *WARMUP,
    *PRECISION,
    *CHECKPOINTING,
    KEPT_ON_THE_DEVICE,
    *LOGGING,
    LOG_STEPS,
    *SAVING,
    *EVALUATION,
    EVALUATION_AS_IT_LOGS,
    *PREDICTIONS,
    *RUNTIME,
    *LOSS,
)
_ARGUMENTS = ("output_dir", "per_device_train_batch_size", "num_train_epochs", "optim")


def _is_training(document: Json) -> bool:
    if not isinstance(document, dict) or {"model_name_or_path", "zero_optimization"} & {*document}:
        return False
    return any(key in document for key in _ARGUMENTS)


def _is_model(document: Json) -> bool:
    if not isinstance(document, dict) or "model_name_or_path" not in document:
        return False
    return not SFT.recognise(document)


TRAINING_ARGS: Final = File(
    name="training_args.yaml",
    format="yaml",
    entries=_TRAINING,
    recognise=_is_training,
    schema=schema_of("seq2seq_training_arguments", "", _TRAINING),
    leaves=LEAVES,
    names=("deepspeed",),
)
MODEL_ARGS: Final = File(
    name="model_args.yaml",
    format="yaml",
    entries=(*MODEL, *WIDENING, trust(until="1.7"), *QUANTIZATION, *ADAPTER),
    recognise=_is_model,
    in_code=FROM_PRETRAINED,
)


def compute_dtype(documents: Documents) -> Iterator[Definition]:
    """The compute dtype if `bf16` and `fp16` are off: the dtype of the weights.

    transformers 4.40.2 to 5.23.0 training_args.py: mixed_precision is then `no`. Only the files
    together determine it.
    """
    keys = {
        key: (file, each[key])
        for file, each in documents.items()
        for key in ("bf16", "fp16", "dtype", "torch_dtype")
        if key in each
    }
    flags = [keys[name][1].value for name in ("bf16", "fp16") if name in keys]
    if not flags or any(flag is not False for flag in flags):
        return
    if "bf16" not in keys and method_of(dict.fromkeys(chain(*documents.values()))) is not None:
        return  # TRL's configs turn bf16 on where nothing is said of it
    for key in ("dtype", "torch_dtype"):
        if key in keys:
            file, found = keys[key]
            dtype = dtype_of(found.value)
            reason = f"bf16 and fp16 are off, and {key} says {found.value}"
            if dtype is not None:
                yield Definition(
                    "precision.compute", dtype, Rank.OBSERVED, file, reason, span=found.span
                )
            return


_MODEL_SAYS = "the model's own config says it"
_SCRIPT = "the training script says it"
_ENGINE = "the engine and the adapter library decide it"
_UNTOUCHED = "it has no effect in this plan"
_NO_FSDP = "another engine is used, or accelerate.yaml says it to the launcher"
_SCALER = (
    "torch's GradScaler scales the loss, and no key sets it "
    "(accelerate utils/modeling.py `get_grad_scaler`)"
)


def _has_own_file(plan: Plan) -> bool:
    return plan.parallel.engine in ("deepspeed", "fsdp")


CANNOT: Final = {
    **BY_CLUSTER,
    **FITTED,
    **{
        f"model.{name}": Cannot(_MODEL_SAYS)
        for name in ("family", "kind", "parameters", "published")
    },
    "model.trust_remote_code": Cannot(f"{_SCRIPT}: ModelConfig has no key for it from trl 1.7 on"),
    **{f"devices.{name}": by_launcher() for name in ("nodes", "per_node", "visible")},
    **{
        f"data.{name}": Cannot(f"{_SCRIPT}: TrainingArguments has no key for data")
        for name in (
            *("train", "more", "limits", "references", "evaluation", "format", "samples"),
            "sequence",
            *("packing", "images"),
            *("image_width", "image_height", "image_tokens", "vision_tokens", "frames"),
        )
    },
    "data.chat_template": Cannot("the script forms its texts itself", True, (None,)),
    "data.loss_on": Cannot("the script masks tokens itself", True, (None,)),
    "precision.compute": Cannot("bf16 and fp16 are off, so the dtype of the weights decides"),
    "precision.initial_scale_power": Cannot(_SCALER, loses=True, harmless=(16,)),
    "precision.loss_scale_window": Cannot(_SCALER, loses=True, harmless=(1000, 2000)),
    "precision.hysteresis": Cannot(_SCALER, loses=True, harmless=(1, 2)),
    "precision.min_loss_scale": Cannot(_SCALER, loses=True, harmless=(1,)),
    "precision.deprecated_fp16": Cannot(
        "the launch command says it", elsewhere=lambda plan: plan.precision.deprecated_fp16
    ),
    **{f"quantization.{name}": Cannot(_UNTOUCHED) for name in ("double", "compute", "storage")},
    **{
        f"adapter.{name}": Cannot(_UNTOUCHED)
        for name in (
            *("rank", "alpha", "dropout", "targets", "parameters", "bias"),
            *("rslora", "dora", "also_train"),
        )
    },
    "adapter.frozen": Cannot(
        "no key of these files freezes a part of the model", loses=True, harmless=((),)
    ),
    "adapter.trainable_parameters": Cannot(_MODEL_SAYS),
    **supervised("transformers' Trainer"),
    **{
        f"evaluation.{name}": Cannot("generation_max_length says both together, where it is given")
        for name in ("prompt", "completion")
    },
    **{
        f"optimizer.{name}": Cannot("the optimizer has no such number")
        for name in ("beta1", "beta2", "epsilon")
    },
    "optimizer.kernel": Cannot("offloaded, DeepSpeed's own CPU optimizer runs"),
    "parallel.engine": Cannot("of several processes torch makes DDP", elsewhere=_has_own_file),
    "parallel.world": by_launcher(),
    "parallel.data": Cannot("processes, less those that share a sequence, are its width"),
    "parallel.tensor": Cannot(
        "the Trainer's arguments split nothing but the data", loses=True, harmless=(1,)
    ),
    "parallel.sequence": Cannot(
        "accelerate.yaml says it, to the launcher",
        elsewhere=lambda plan: plan.parallel.sequence > 1,
    ),
    **{
        f"states.{name}": Cannot(_ENGINE)
        for name in ("trainable", "gradients", "master_weights", "optimizer")
    },
    "activation_checkpointing.reentrant": Cannot(_UNTOUCHED),
    "batch.global": Cannot("micro batch, accumulation and processes say it"),
    "schedule.steps": Cannot("the Trainer counts them, by the epochs"),
    "schedule.estimated_steps": Cannot("the Trainer counts them, by the epochs"),
    "schedule.warmup_steps": Cannot("the Trainer counts them, by the share"),
    **{
        f"zero.{name}": Cannot(_UNTOUCHED)
        for name in (
            *("stage", "offload_optimizer", "offload_param", "nvme_path", "pin_memory"),
            *("overlap_comm", "contiguous_gradients", "reduce_scatter", "reduce_bucket"),
            *("allgather_bucket", "prefetch_bucket", "persistence_threshold"),
            *("max_live_parameters", "max_reuse_distance", "sub_group_size", "gather_on_save"),
            *("hpz_partition", "leaf_modules"),
        )
    },
    **{slot: Cannot(_NO_FSDP, elsewhere=on_fsdp) for slot in SLOTS if slot.startswith("fsdp.")},
    "activation_checkpointing.mode": Cannot(_UNTOUCHED),
    **{f"launch.{name}": by_launcher() for name in ("launcher", "environment", "script")},
}

TARGET: Final = Target(
    name="huggingface",
    package="transformers",
    supported=TRANSFORMERS.supported,
    latest=TRANSFORMERS.latest,
    releases=TRANSFORMERS.releases,
    files=(
        TRAINING_ARGS,
        ADAPTER_CONFIG,
        MODEL_ARGS,
        SFT,
        SFT_CARD,
        ds_config(TRAINER, when=on_deepspeed),
    ),
    cannot=CANNOT,
    beside={TRL: TRL_RELEASES, PEFT: PEFT_RELEASES, PACKAGE: DEEPSPEED},
    companions=companions,
    imports=optimizer_packages,
    together=compute_dtype,
    takes_fsdp=True,
    heeds_launcher=True,
    counting=counting,
    verify="tunec.targets.huggingface.verify",
)
