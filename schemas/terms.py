"""The field's terms as closed sets: what a spec may contain and what a plan can hold."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

DataFormat = Literal["messages", "sharegpt", "alpaca", "prompt-completion", "text"]
"""What a record of supervised training data looks like; `schemas/data_paths.py` has the columns."""
LossOn = Literal["answers", "all"]
"""The tokens of a text that bear the loss: those of answers, or all of them."""
PLAIN_TEMPLATE: Final = "plain"
"""The chat template that is written into a bundle; any other is the path of a file."""
FloatDtype = Literal["bf16", "fp16", "fp32"]
StateDtype = Literal["bf16", "fp16", "fp32", "int8"]
QuantFormat = Literal["none", "nf4", "fp4", "int8"]
AdapterKind = Literal["none", "lora"]
AdapterMerge = Literal["never", "device", "host"]
"""Where adapters are merged into the base after training: nowhere, so that they stay in files of
their own; on a device, beside everything that training holds; or in host RAM, from files."""
FreezablePart = Literal["vision", "projector", "text", "embeddings"]
"""A part of a model that full fine-tuning can leave as it is."""
Attention = Literal["eager", "sdpa", "flash_attention_2"]
OptimizerName = Literal[
    "adamw",
    "adamw_8bit",
    "paged_adamw_8bit",
    "paged_adamw_32bit",
    "adamw_bf16",
    "adafactor",
    "lion",
    "lion_8bit",
    "paged_lion_8bit",
    "paged_lion_32bit",
    "muon",
    "sgd",
    "lomo",
    "adalomo",
]
STEPS_IN_BACKWARD: Final[frozenset[OptimizerName]] = frozenset({"lomo", "adalomo"})
"""Optimizers that step each tensor in the backward pass, as soon as its gradient has come: LOMO
(arXiv 2306.09782) and AdaLOMO (arXiv 2310.10195), lomo-optim 0.1.1 `fuse_update`."""
OptimizerKernel = Literal["loop", "foreach", "fused", "bitsandbytes", "own"]
"""Which implementation runs on the device: torch's three, bitsandbytes, or the trainer's own.
With the optimizer offloaded, DeepSpeed runs its CPU Adam instead."""
ScheduleKind = Literal[
    "constant",
    "constant_with_warmup",
    "linear",
    "cosine",
    "cosine_with_restarts",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "polynomial",
    "inverse_sqrt",
    "warmup_stable_decay",
]
"""Names as in transformers 5.23.0 trainer_utils.py `SchedulerType`, without those driven by a
metric."""
Engine = Literal["none", "ddp", "deepspeed", "fsdp"]
FsdpSharding = Literal["none", "full", "grad_op", "hybrid"]
"""torch's `ShardingStrategy`: NO_SHARD, FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD."""
FsdpWrap = Literal["none", "transformer", "size"]
FsdpPrefetch = Literal["none", "pre", "post"]
StateDict = Literal["full", "sharded"]
Offload = Literal["none", "cpu", "nvme"]
Checkpointing = Literal["none", "layer"]
Launcher = Literal["python", "torchrun", "deepspeed", "accelerate"]
LossScaling = Literal["none", "dynamic"]
LossPath = Literal["full", "fused", "chunked"]
"""How logits become a loss: all at once; by Liger's fused linear cross entropy (arXiv 2410.10989);
or in chunks, as in TRL's trainers."""
ObjectiveKind = Literal["sft", "dpo", "grpo", "ppo", "reward"]
Reference = Literal["none", "resident", "base", "precomputed"]
"""The reference of a preference method: none; a second model beside the trained one; the trained
one without its adapters; or values computed before training."""
PairLoss = Literal["sigmoid", "hinge", "ipo", "apo_zero", "apo_down"]
"""Losses over a pair of answers: DPO (arXiv 2305.18290), SLiC (2305.10425), IPO (2310.12036) and
the two of APO (2408.06266)."""
GroupLoss = Literal["grpo", "bnpo", "dr_grpo", "dapo"]
"""How the loss of a group of answers is averaged: by answer (arXiv 2402.03300), over the tokens of
a local batch, by a fixed length (2503.20783), or over those of the whole batch (2503.14476)."""
KlPlace = Literal["none", "reward", "loss"]
"""Where the distance from the reference counts: in the reward of each token (arXiv 2203.02155), or
in the loss beside the reward (2402.03300)."""
Predictions = Literal["loss", "logits", "answers"]
"""What evaluation computes for a batch: its loss; its logits, kept for a metric; or generated
answers."""
Generator = Literal["none", "transformers", "vllm_colocate", "sglang_colocate", "vllm_server"]
"""What generates the answers to train on: transformers' own loop, vLLM or SGLang on the same
devices, or a vLLM server elsewhere."""
BESIDE_TRAINING: Final = ("vllm_colocate", "sglang_colocate")
"""Generation engines that share the devices that train."""

Resource = Literal["products", "memory", "host", "links", "pcie", "host memory", "storage"]
"""What a term of the time account waits for: matrix products, a device's memory, Python on the
host, the links between devices, PCIe, the host's memory, its drives."""
RESOURCES: Final[tuple[Resource, ...]] = get_args(Resource)
EDITION: Final = 4
"""The version of the time account. It rises whenever the account's terms or constants change, since
measured factors of other terms are meaningless."""

Vendor = Literal["nvidia", "amd", "intel", "huawei"]
VISIBLE: Final[Mapping[Vendor, str]] = {
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "amd": "HIP_VISIBLE_DEVICES",
    "intel": "HABANA_VISIBLE_MODULES",
    "huawei": "ASCEND_RT_VISIBLE_DEVICES",
}
"""The variable by which a process chooses devices: CUDA C programming guide, CUDA environment
variables; ROCm documentation, GPU isolation techniques; Intel Gaudi documentation, Multiple Tenants
on HPU; CANN documentation, environment variables."""
