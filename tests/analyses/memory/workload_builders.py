"""Workloads and layouts for tests, written by what differs from the simplest one."""

from collections.abc import Iterable
from typing import Any

from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.analyses.memory.workload import NO_FSDP, Layout, Workload
from tunec.compiler.ir.slots import (
    ActivationCheckpointing,
    Adapter,
    AttentionKernel,
    Batch,
    Data,
    Optimizer,
    Parallel,
    Precision,
    Quantization,
    States,
    Zero,
)
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Module

ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ATTENTION = ALL_LINEAR[:4]

LLAMA_3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
LLAMA_32_1B = LLAMA_3_8B | {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "head_dim": 64,
    "tie_word_embeddings": True,
}
SMALL_LLAMA = LLAMA_32_1B | {
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 2048,
}
LLAMA_32_3B = LLAMA_32_1B | {
    "hidden_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "head_dim": 128,
}
LLAMA_2_7B = LLAMA_3_8B | {
    "intermediate_size": 11008,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
QWEN_25_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}
MISTRAL_7B = LLAMA_3_8B | {
    "model_type": "mistral",
    "vocab_size": 32000,
    "sliding_window": 4096,
    "max_position_embeddings": 32768,
}
POWERLM_3B = {
    "model_type": "granite",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 40,
    "num_attention_heads": 36,
    "num_key_value_heads": 36,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}

_DATA = Data(
    train="train.jsonl",
    more=(),
    limits=(),
    references=(),
    evaluation=None,
    format=None,
    chat_template=None,
    loss_on=None,
    samples=None,
    sequence=2048,
    packing=True,
    images=0,
    image_width=0,
    image_height=0,
    image_tokens=0,
    vision_tokens=0,
    frames=0,
)
_PRECISION = Precision(
    compute="bf16",
    loss_scaling="none",
    initial_scale_power=16,
    loss_scale_window=1000,
    hysteresis=2,
    min_loss_scale=1,
    tf32=False,
    deprecated_fp16=False,
)
_PLAIN = Quantization(format="none", double=False, compute="bf16", storage=None)
_NO_ADAPTER = Adapter(
    kind="none",
    rank=0,
    alpha=0,
    dropout=0,
    targets=(),
    parameters=(),
    bias="none",
    rslora=False,
    dora=False,
    merge="never",
    also_train=(),
    frozen=(),
    trainable_parameters=0,
)
_ADAMW = Optimizer(
    name="adamw",
    kernel="fused",
    learning_rate=1e-4,
    beta1=0.9,
    beta2=0.999,
    epsilon=1e-8,
    weight_decay=0,
    max_grad_norm=1,
)
_PARALLEL = Parallel(engine="none", world=1, data=1, tensor=1, sequence=1)
_STATES = States(
    weights="bf16",
    trainable="bf16",
    gradients="bf16",
    master_weights=False,
    optimizer="bf16",
    autocast=False,
)
_ZERO = Zero(
    stage=0,
    offload_optimizer="none",
    offload_param="none",
    nvme_path=None,
    pin_memory=True,
    overlap_comm=False,
    contiguous_gradients=True,
    reduce_scatter=True,
    reduce_bucket=500_000_000,
    allgather_bucket=500_000_000,
    prefetch_bucket=50_000_000,
    persistence_threshold=100_000,
    max_live_parameters=1_000_000_000,
    max_reuse_distance=1_000_000_000,
    sub_group_size=1_000_000_000,
    gather_on_save=True,
    hpz_partition=1,
    leaf_modules=None,
)


def model(config: dict[str, Any], **changes: Any) -> Architecture:
    return derive(config | changes)


def matching(architecture: Architecture, names: Iterable[str]) -> tuple[Module, ...]:
    """Linear modules of the language model whose path ends in one of the names."""
    wanted = tuple(names)
    return tuple(
        module
        for module in architecture.modules
        if module.kind == "linear" and module.path.rpartition(".")[2] in wanted
    )


def full(architecture: Architecture, **changes: Any) -> Workload:
    return _workload(architecture, trained=architecture.modules, **changes)


def partly(architecture: Architecture, trained: Iterable[Module], **changes: Any) -> Workload:
    """Some modules trained themselves."""
    return _workload(architecture, trained=tuple(trained), **changes)


def lora(
    architecture: Architecture,
    *,
    rank: int = 16,
    dropout: float = 0,
    targets: Iterable[str] = ALL_LINEAR,
    also_train: tuple[Module, ...] = (),
    **changes: Any,
) -> Workload:
    adapter = replace(_NO_ADAPTER, kind="lora", rank=rank, alpha=16, dropout=dropout)
    adapted = changes.pop("adapted", None) or matching(architecture, targets)
    changes = {"adapter": adapter, "adapted": adapted, "trained": also_train} | changes
    return _workload(architecture, **changes)


NOT_QUANTISED = _PLAIN


def nf4(*, double: bool = True) -> Quantization:
    return Quantization(format="nf4", double=double, compute="bf16", storage=None)


def _workload(architecture: Architecture, **changes: Any) -> Workload:
    slots: dict[str, Any] = {
        "architecture": architecture,
        "components": (),
        "data": _DATA,
        "precision": _PRECISION,
        "attention": AttentionKernel("sdpa"),
        "quantization": _PLAIN,
        "adapter": _NO_ADAPTER,
        "optimizer": _ADAMW,
        "adapted": (),
        "trained": (),
    }
    for group in ("data", "optimizer", "precision"):
        part = {key: changes.pop(key) for key in list(changes) if key in _fields(slots[group])}
        slots[group] = replace(slots[group], **part)
    return Workload(**{**slots, **changes})


def _fields(group: Any) -> frozenset[str]:
    return frozenset(group.__struct_fields__)


def layout(
    micro: int = 1,
    *,
    checkpointed: bool = False,
    accumulation: int = 1,
    evaluation: int = 1,
    engine: str = "none",
    world: int = 1,
    **changes: Any,
) -> Layout:
    """A layout; further names are fields of states, zero and parallel."""
    mode = ActivationCheckpointing("layer" if checkpointed else "none", False, 1, 0, False)
    groups: dict[str, Any] = {
        "states": _STATES,
        "zero": _ZERO,
        "parallel": _PARALLEL,
        "activation_checkpointing": mode,
    }
    groups["parallel"] = replace(_PARALLEL, engine=engine, world=world, data=world)
    fsdp, nodes = changes.pop("fsdp", NO_FSDP), changes.pop("nodes", 1)
    for name, group in groups.items():
        part = {key: changes.pop(key) for key in list(changes) if key in _fields(group)}
        groups[name] = replace(group, **part)
    assert not changes, f"no slot is called {sorted(changes)}"
    batch = Batch(
        micro=micro,
        accumulation=accumulation,
        global_=micro * accumulation * world,
        evaluation=evaluation,
    )
    return Layout(batch=batch, fsdp=fsdp, nodes=nodes, **groups)


BF16_LORA = {"trainable": "fp32", "gradients": "fp32", "optimizer": "fp32"}
"""bf16 base, fp32 adapters: what peft makes of a bf16 model."""
FP32 = {"weights": "fp32", "trainable": "fp32", "gradients": "fp32", "optimizer": "fp32"}
MIXED = {
    "weights": "bf16",
    "trainable": "bf16",
    "gradients": "bf16",
    "master_weights": True,
    "optimizer": "fp32",
}
"""DeepSpeed with bf16 enabled."""


FSDP_1 = replace(
    NO_FSDP,
    version=1,
    sharding="full",
    wrap="transformer",
    backward_prefetch="pre",
    use_orig_params=True,
    state_dict="sharded",
)
"""accelerate's FSDP 1 with a unit for each layer."""
