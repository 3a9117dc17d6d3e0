"""The field's words, as closed sets: what a spec may say and what a plan can hold."""

from typing import Literal

FloatDtype = Literal["bf16", "fp16", "fp32"]
StateDtype = Literal["bf16", "fp16", "fp32", "int8"]
QuantFormat = Literal["none", "nf4", "fp4", "int8"]
AdapterKind = Literal["none", "lora"]
Attention = Literal["eager", "sdpa", "flash_attention_2"]
OptimizerName = Literal[
    "adamw",
    "adamw_8bit",
    "paged_adamw_8bit",
    "paged_adamw_32bit",
    "adamw_bf16",
    "adafactor",
    "lion",
    "sgd",
]
OptimizerKernel = Literal["loop", "foreach", "fused", "bitsandbytes", "own"]
"""Which implementation runs on the device: torch's three, bitsandbytes, or the trainer's own.
With the optimizer offloaded, DeepSpeed runs its CPU Adam instead."""
ScheduleKind = Literal["constant", "constant_with_warmup", "linear", "cosine"]
Engine = Literal["none", "ddp", "deepspeed"]
Offload = Literal["none", "cpu", "nvme"]
Checkpointing = Literal["none", "layer"]
Launcher = Literal["python", "torchrun", "deepspeed", "accelerate"]
LossScaling = Literal["none", "dynamic"]
