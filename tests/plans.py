"""Plans by name: one that holds together, and what of it is said otherwise."""

from collections.abc import Mapping
from typing import Any

from tests.tables import table

from tunec.compiler.ir.plan import Plan

BASE: Mapping[str, Any] = {
    slot: tuple(value) if isinstance(value, list) else value
    for slot, value in table(__file__).items()
}

DPO: Mapping[str, Any] = {
    "objective.kind": "dpo",
    "objective.loss": "sigmoid",
    "objective.beta": 0.1,
    "objective.reference": "base",
    "loss.path": "chunked",
}
GRPO: Mapping[str, Any] = {
    "objective.kind": "grpo",
    "objective.loss": "dapo",
    "objective.beta": 0.0,
    "objective.rewards": ("accuracy_reward",),
    "generation.engine": "transformers",
    "generation.samples": 8,
    "generation.prompt": 1536,
    "generation.completion": 512,
    "generation.temperature": 1.0,
    "loss.path": "chunked",
}
REWARD: Mapping[str, Any] = {
    "model.kind": "sequence-classifier",
    "adapter.also_train": ("score",),
    "objective.kind": "reward",
    "objective.loss": "sigmoid",
    "loss.path": "full",
}
ZERO_1: Mapping[str, Any] = {"zero.stage": 1}
ZERO_3: Mapping[str, Any] = {
    "zero.stage": 3,
    "zero.reduce_scatter": False,
    "zero.allgather_bucket": 0,
    "zero.prefetch_bucket": 15_099_494,
    "zero.persistence_threshold": 40_960,
    "zero.max_live_parameters": 1_000_000_000,
    "zero.max_reuse_distance": 900_000_000,
    "zero.sub_group_size": 800_000_000,
    "zero.gather_on_save": True,
}
OFFLOAD: Mapping[str, Any] = {"zero.offload_optimizer": "cpu", "zero.pin_memory": True}
NVME: Mapping[str, Any] = {
    **ZERO_3,
    "zero.offload_optimizer": "nvme",
    "zero.offload_param": "nvme",
    "zero.nvme_path": "/local_nvme",
    "zero.pin_memory": True,
}
ZERO_0: Mapping[str, Any] = {
    "zero.stage": 0,
    **{f"zero.{name}": False for name in ("overlap_comm", "contiguous_gradients")},
    "zero.reduce_scatter": False,
    "zero.reduce_bucket": 0,
    "zero.allgather_bucket": 0,
}
FP16: Mapping[str, Any] = {
    "precision.compute": "fp16",
    "precision.loss_scaling": "dynamic",
    "precision.loss_scale_window": 400,
    "quantization.compute": "fp16",
    **{f"states.{name}": "fp16" for name in ("weights", "trainable", "gradients")},
}
FP32: Mapping[str, Any] = {
    "precision.compute": "fp32",
    "quantization.compute": "fp32",
    **{f"states.{name}": "fp32" for name in ("weights", "trainable", "gradients")},
}
DDP: Mapping[str, Any] = {
    **ZERO_0,
    "parallel.engine": "ddp",
    "launch.launcher": "torchrun",
    "states.trainable": "fp32",
    "states.gradients": "fp32",
    "states.master_weights": False,
    "states.autocast": True,
}
FSDP_2: Mapping[str, Any] = {
    **DDP,
    "parallel.engine": "fsdp",
    "launch.launcher": "accelerate",
    "fsdp.version": 2,
    "fsdp.sharding": "full",
    "fsdp.wrap": "transformer",
    "fsdp.backward_prefetch": "pre",
    "fsdp.use_orig_params": True,
    "fsdp.efficient_loading": True,
    "fsdp.checkpointing": True,
}
FSDP_1: Mapping[str, Any] = {**FSDP_2, "fsdp.version": 1}
ONE: Mapping[str, Any] = {
    **DDP,
    "parallel.engine": "none",
    "parallel.world": 1,
    "parallel.data": 1,
    "devices.per_node": 1,
    "batch.global": 8,
    "launch.launcher": "python",
}


def plan_of(*changes: Mapping[str, Any]) -> Plan:
    """A LoRA run of an 8B model on ZeRO-2 over eight devices, with slots changed."""
    values = dict(BASE)
    for each in changes:
        values |= each
    return Plan.of(values)
