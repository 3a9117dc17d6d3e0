"""Plans that llama_cookbook.finetuning does not run, or runs differently."""

from typing import Final

from packaging.version import Version

from tunec.compiler.ir.plan import Plan
from tunec.targets.llama_cookbook.rows import PACKAGE, packs
from tunec.targets.rows import has_adapter, is_quantised, on_fsdp
from tunec.targets.scripts.refusals import Refusal

_FIRST_WITH_IGEMMLT: Final = Version("7.5")


def _spreads(plan: Plan) -> bool:
    """Whether `device_map="auto"` would spread the model over several visible devices."""
    seen = len(plan.devices.visible) or plan.devices.per_node
    return is_quantised(plan) and seen > 1 and not on_fsdp(plan)


def _int8_without_kernels(plan: Plan) -> bool:
    capability = plan.devices.capability
    if plan.quantization.format != "int8" or plan.precision.compute != "fp16":
        return False
    return capability is not None and Version(capability) < _FIRST_WITH_IGEMMLT


def _has_bf16_shards(plan: Plan) -> bool:
    return on_fsdp(plan) and not has_adapter(plan)


REFUSALS: Final = (
    Refusal(
        ("parallel.engine",),
        "it runs one process, or its own FSDP",
        lambda plan: plan.parallel.engine not in ("none", "fsdp"),
        f"{PACKAGE} finetuning.py `main`",
        "request engine: fsdp, or one device",
    ),
    Refusal(
        ("parallel.engine", "launch.launcher"),
        "its FSDP reads the variables that torchrun sets",
        lambda plan: on_fsdp(plan) and plan.launch.launcher != "torchrun",
        f"{PACKAGE} finetuning.py `main`: LOCAL_RANK, RANK, WORLD_SIZE",
        "use `launcher: torchrun`",
    ),
    Refusal(
        ("parallel.engine", "adapter.kind"),
        "its FSDP shards parameters in bf16, trains these and keeps no fp32 copy of them",
        _has_bf16_shards,
        f"{PACKAGE} finetuning.py `main`: torch_dtype bfloat16, optim.AdamW(model.parameters())",
        "train adapters, which are fp32, or compile to another target",
    ),
    Refusal(
        ("parallel.engine", "quantization.format"),
        "it refuses 8 bit with FSDP",
        lambda plan: on_fsdp(plan) and plan.quantization.format == "int8",
        f"{PACKAGE} finetuning.py `main`, ValueError",
        "use qlora",
    ),
    Refusal(
        ("model.family",),
        "it trains no other models than llama and mllama",
        lambda plan: plan.model.family not in ("llama", "mllama"),
        f"{PACKAGE} finetuning.py `main`, ValueError",
        "train a Llama model, or compile to another target",
    ),
    Refusal(
        ("model.kind", "data.packing"),
        "it does not pack samples with images",
        lambda plan: plan.model.kind == "vision-language" and packs(plan),
        f"{PACKAGE} finetuning.py `main`, ValueError",
        "set data.packing to false",
    ),
    Refusal(
        ("precision.compute", "adapter.kind"),
        "it trains fp16 parameters, whose gradients GradScaler does not unscale",
        lambda plan: plan.precision.compute == "fp16" and not has_adapter(plan),
        f"{PACKAGE} utils/train_utils.py `train`; torch amp/grad_scaler.py `_unscale_grads_`",
        "compute in bf16, or train adapters",
    ),
    Refusal(
        ("quantization.format", "devices.visible"),
        "it lays a quantised model over every device in sight (device_map='auto')",
        _spreads,
        f"{PACKAGE} finetuning.py `main`",
        "name the one device under `devices`",
    ),
    Refusal(
        ("quantization.format", "precision.compute", "devices.capability"),
        "below capability 7.5 LLM.int8() falls back, and its backward pass then mixes Half and "
        "float under fp16 autocast",
        _int8_without_kernels,
        "bitsandbytes autograd/_functions.py `MatMul8bitLt`; meta-llama/llama-cookbook issue 715",
        "use qlora, or a device of capability 7.5 or higher",
    ),
)
