"""Settings that torchtune's recipes refuse together, or alone."""

from typing import Final

from tunec.compiler.lints.rows import Form, Row, rows

_KIND: Final = "torchtune"
_beside: Final = Form(_KIND, "{0.path} is refused beside {1.path}")
_without: Final = Form(_KIND, "{0.path} is refused without {1.path}", lacks=True)
_STEPPED: Final = "each weight steps as soon as it has its gradient, and keeps none: RuntimeError"
_IN_PPO: Final = "no ppo_batch_size"
"""The recipe of PPO does not check the clipping."""
_DISTILLED: Final = "no teacher_model"
"""The recipes of distillation do not offload."""

SETTING_REFUSED_BY_TORCHTUNE: Final = rows(
    "setting-refused-by-torchtune",
    "error",
    "init",
    consumers=(_KIND,),
    rows=(
        Row(
            f"{_KIND}:optimizer_in_bwd=true",
            "{0.path} is refused beside {1.path} {1.value}",
            "refused",
            _STEPPED,
            "write clip_grad_norm: null, or optimizer_in_bwd: false",
            beside=("clip_grad_norm", _IN_PPO),
        ),
        Row(
            f"{_KIND}:optimizer_in_bwd=true",
            "{0.path} is refused beside {1.path} {1.value}",
            "refused",
            _STEPPED,
            "write gradient_accumulation_steps: 1, or optimizer_in_bwd: false",
            beside=("gradient_accumulation_steps>1",),
        ),
        Row(
            f"{_KIND}:enable_activation_offloading=true",
            "{0.path} is refused without enable_activation_checkpointing",
            "refused",
            "the recipe offloads what checkpointing keeps: RuntimeError",
            "write enable_activation_checkpointing: true",
            beside=("no enable_activation_checkpointing=true", _DISTILLED),
        ),
        Row(
            f"{_KIND}:enable_activation_offloading=true",
            "{0.path} is refused beside {1.path} {1.value}",
            "refused",
            "activations are moved from a CUDA device alone: RuntimeError",
            "write device: cuda, or enable_activation_offloading: false",
            beside=("device!=cuda", _DISTILLED),
        ),
        Row(
            f"{_KIND}:dtype=fp16",
            "{0.path} {0.value} is refused",
            "refused",
            "the recipes have no loss scaling: ValueError",
            "write bf16 or fp32",
        ),
        _without(
            "tensor_parallel_dim>1",
            "tensor_parallel_plan",
            "the plan says how each layer is cut: ValueError",
            "write tensor_parallel_plan with the _component_ of the model's plan",
            since="torchtune>=0.6",
        ),
        _beside(
            "tensor_parallel_dim>1",
            "optimizer.fused=true",
            "the fused optimizer does not step cut weights: ValueError",
            "write optimizer.fused: false",
            since="torchtune>=0.6",
        ),
        _beside(
            "compile",
            "quantizer{}",
            "the recipes of QAT do not compile: ValueError",
            "write compile: false",
        ),
    ),
)
"""pytorch/torchtune 0.5.0 to 0.6.1 recipes/full_finetune_distributed.py,
full_finetune_single_device.py, lora_finetune_distributed.py, lora_finetune_single_device.py,
lora_dpo_distributed.py, lora_dpo_single_device.py, full_dpo_distributed.py,
ppo_full_finetune_single_device.py, qat_distributed.py, qat_lora_finetune_distributed.py:
`__init__`."""
