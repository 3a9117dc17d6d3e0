"""The slots: everything that can be decided, typed and addressed by path.

A group is a frozen dataclass; each of its fields is a slot, `batch.micro` being field `micro` of
group `batch`. A trailing underscore keeps a Python keyword out (`batch.global_` is slot
`batch.global`). One pass decides a whole group, so what a pass may read is what has a group.
Amounts of memory are bytes; bucket sizes are elements, as DeepSpeed counts them.
"""

from dataclasses import fields
from typing import Any, Final

from tunec.compiler.ir.job import Job
from tunec.compiler.ir.loop import Runtime, Schedule
from tunec.compiler.ir.slot import slot as _slot
from tunec.schemas.frozen import dataclass
from tunec.schemas.terms import (
    AdapterKind,
    AdapterMerge,
    Attention,
    Checkpointing,
    Engine,
    FloatDtype,
    FsdpPrefetch,
    FsdpSharding,
    FsdpWrap,
    Generator,
    Launcher,
    LossPath,
    LossScaling,
    ObjectiveKind,
    Offload,
    OptimizerKernel,
    OptimizerName,
    Predictions,
    QuantFormat,
    Reference,
    StateDict,
    StateDtype,
    Vendor,
)


@dataclass(frozen=True, slots=True)
class Model:
    """Which model is trained, from the catalogue or its own config."""

    path: str = _slot("argument of `from_pretrained`: a repository name or a directory")
    family: str = _slot("`model_type` of its config, or the diffusers class")
    kind: str = _slot("causal-lm, vision-language, encoder-decoder, encoder or diffusion")
    parameters: int = _slot("all parameters, adapters not counted", "parameters")
    trust_remote_code: bool = _slot("whether the model is built by code from its own repository")


@dataclass(frozen=True, slots=True)
class Devices:
    """Which accelerators are used, and what they are."""

    model: str = _slot("catalogue name of the weakest device used")
    vendor: Vendor = _slot("vendor: nvidia, amd, intel (Gaudi) or huawei (Ascend)")
    nodes: int = _slot("nodes used", "nodes")
    per_node: int = _slot("devices used on each node", "devices")
    visible: tuple[str, ...] = _slot(
        "devices as `CUDA_VISIBLE_DEVICES` names them: PCI order numbers or UUIDs; empty: all"
    )
    capability: str | None = _slot("compute capability of the weakest device, `7.0`")
    memory: int = _slot("memory of the smallest device used, as the driver reports it", "bytes")
    budget: int = _slot("how much of that the run may use", "bytes")
    reserve: int = _slot(
        "how much of that the run leaves free, unless that costs a tenth of the speed",
        "bytes",
    )
    host_budget: int | None = _slot(
        "host RAM of a node that the run may use; none: unknown", "bytes"
    )


@dataclass(frozen=True, slots=True)
class Data:
    """What one sample is and how many there are."""

    train: str = _slot("training data: file, directory or data set name")
    more: tuple[str, ...] = _slot(
        "further training data of the same epoch; data seen n times per epoch is listed n times"
    )
    evaluation: str | None = _slot("evaluation data")
    samples: int | None = _slot("training samples of an epoch; none: unknown", "samples")
    sequence: int = _slot("most text tokens in one sample; 0 for diffusion", "tokens")
    packing: bool = _slot("whether several samples share one sequence")
    images: int = _slot("images in one sample", "images")
    image_width: int = _slot("pixels; 0: no images", "pixels")
    image_height: int = _slot("pixels; 0: no images", "pixels")
    image_tokens: int = _slot("tokens that the images of one sample add to the sequence", "tokens")
    vision_tokens: int = _slot("patch tokens the vision tower runs for one sample", "tokens")


@dataclass(frozen=True, slots=True)
class Precision:
    """In which arithmetic the model trains, and how fp16 is kept from underflow."""

    compute: FloatDtype = _slot("dtype of matrix products in forward and backward")
    loss_scaling: LossScaling = _slot("dynamic with fp16, none otherwise")
    initial_scale_power: int = _slot("log2 of the first loss scale")
    loss_scale_window: int = _slot("steps without overflow before the scale doubles", "steps")
    hysteresis: int = _slot("overflows tolerated before the scale halves")
    min_loss_scale: int = _slot("the scale never goes below this")
    tf32: bool = _slot("whether fp32 products may use TF32 units")
    deprecated_fp16: bool = _slot("DS_ALLOW_DEPRECATED_FP16: fp16 on compute capability 6.x")


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """Which attention code runs."""

    implementation: Attention = _slot("eager, sdpa or flash_attention_2")


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the frozen base is stored."""

    format: QuantFormat = _slot("none, nf4, fp4 or int8 (bitsandbytes)")
    double: bool = _slot("whether the block scales are quantised too")
    compute: FloatDtype = _slot("dtype into which a weight is dequantised for matrix products")
    storage: FloatDtype | None = _slot("dtype that holds packed 4-bit weights; none: uint8")


@dataclass(frozen=True, slots=True)
class Adapter:
    """What is trained instead of the base, or beside it."""

    kind: AdapterKind = _slot("none: the model itself is trained")
    rank: int = _slot("inner width of each adapter; 0: no adapter")
    alpha: float = _slot("scale: output times alpha / rank (or / sqrt(rank))")
    dropout: float = _slot("dropout: dropout: share of the adapter's input set to zero")
    targets: str | tuple[str, ...] = _slot("names by suffix, or one regex over whole module paths")
    bias: str = _slot("none, all or lora_only")
    rslora: bool = _slot("scale by 1/sqrt(rank) (arXiv 2312.03732)")
    dora: bool = _slot("train magnitude apart from direction (arXiv 2402.09353)")
    merge: AdapterMerge = _slot(
        "where the adapter is merged into the base after training: never, device or host"
    )
    also_train: tuple[str, ...] = _slot("modules trained in full beside the adapter")
    frozen: tuple[str, ...] = _slot("parts that full fine-tuning does not train")
    trainable_parameters: int = _slot("parameters with gradients", "parameters")


@dataclass(frozen=True, slots=True)
class Objective:
    """Towards what the model is trained: given texts, preferred answers, or rewarded ones."""

    kind: ObjectiveKind = _slot("sft, dpo (arXiv 2305.18290) or grpo (arXiv 2402.03300)")
    loss: str = _slot("the variant of its loss; `nll` for sft")
    beta: float = _slot("weight of the distance from the reference; 0: no reference")
    reference: Reference = _slot(
        "none, resident (a second model), base (adapters off) or precomputed"
    )
    rewards: tuple[str, ...] = _slot("functions that reward an answer (grpo); none otherwise")


@dataclass(frozen=True, slots=True)
class Generation:
    """Answers that the model writes while it is trained; nothing of it for sft and dpo."""

    engine: Generator = _slot("none, transformers, vllm_colocate or vllm_server")
    samples: int = _slot("answers to one prompt; 0: none are written", "samples")
    prompt: int = _slot("most tokens of a prompt", "tokens")
    completion: int = _slot("most tokens of an answer", "tokens")
    temperature: float = _slot("of sampling; 0: nothing is sampled")
    device_share: float = _slot("share of each device's memory that vLLM takes beside the training")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is computed of the evaluation data besides its loss; nothing of it unless asked for."""

    predictions: Predictions = _slot("loss, logits (kept for a metric) or answers (written for it)")
    prompt: int = _slot("most tokens of a prompt, without its images; 0: none", "tokens")
    completion: int = _slot("most tokens of an answer; 0: none is written", "tokens")
    beams: int = _slot("number of beams; 1: no beam search")
    kept_batches: int | None = _slot(
        (
            "batches whose predictions stay on the device before they move to the host; "
            "none: all of them"
        ),
        "batches",
    )


@dataclass(frozen=True, slots=True)
class Loss:
    """Which code turns hidden states into a loss."""

    path: LossPath = _slot("full (all logits at once), fused (Liger) or chunked (TRL)")


@dataclass(frozen=True, slots=True)
class Optimizer:
    """What moves the parameters."""

    name: OptimizerName = _slot("the algorithm")
    kernel: OptimizerKernel = _slot("implementation of the optimizer")
    learning_rate: float = _slot("the highest learning rate of the schedule")
    beta1: float = _slot("decay of the first moment")
    beta2: float = _slot("decay of the second moment")
    epsilon: float = _slot("added to the denominator")
    weight_decay: float = _slot("decoupled weight decay")
    max_grad_norm: float = _slot("gradients are clipped to this norm; 0: not clipped")


@dataclass(frozen=True, slots=True)
class Parallel:
    """How the devices share the work."""

    engine: Engine = _slot("none (one process), ddp, deepspeed or fsdp")
    world: int = _slot("number of processes, one per device", "processes")
    data: int = _slot("data parallel width", "processes")
    tensor: int = _slot("tensor parallel width", "processes")
    sequence: int = _slot("sequence parallel width", "processes")


@dataclass(frozen=True, slots=True)
class States:
    """In which dtype each kind of training state is held; follows from precision and engine."""

    weights: FloatDtype = _slot("dtype in which the base model is loaded (before quantisation)")
    trainable: FloatDtype = _slot("dtype of the parameters that gradients flow to")
    gradients: FloatDtype = _slot("dtype in which gradients are accumulated")
    master_weights: bool = _slot("whether the engine keeps fp32 copies of the trained parameters")
    optimizer: StateDtype = _slot("dtype of the optimizer's moments")
    autocast: bool = _slot("whether torch autocast wraps the forward pass")


@dataclass(frozen=True, slots=True)
class Zero:
    """DeepSpeed ZeRO: what is sharded, what is moved off the device, in which portions."""

    stage: int = _slot(
        "what is sharded: 0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters"
    )
    offload_optimizer: Offload = _slot("where optimizer states live: none (device), cpu, nvme")
    offload_param: Offload = _slot("where parameter shards live (stage 3): none, cpu, nvme")
    nvme_path: str | None = _slot("directory on the local NVMe for offload")
    pin_memory: bool = _slot("whether offload buffers are page-locked")
    overlap_comm: bool = _slot("whether gradient reduction overlaps the backward pass")
    contiguous_gradients: bool = _slot(
        "whether gradients are copied to one contiguous buffer as they are produced"
    )
    reduce_scatter: bool = _slot("reduce-scatter instead of all-reduce for gradients")
    reduce_bucket: int = _slot("elements reduced at once", "elements")
    allgather_bucket: int = _slot("elements gathered at once (stages 1 and 2)", "elements")
    prefetch_bucket: int = _slot("elements fetched ahead (stage 3)", "elements")
    persistence_threshold: int = _slot("smaller parameters stay whole (stage 3)", "elements")
    max_live_parameters: int = _slot("most elements kept whole (stage 3)", "elements")
    max_reuse_distance: int = _slot(
        "keep a parameter if it is reused within this many elements (stage 3)", "elements"
    )
    sub_group_size: int = _slot("elements updated at once (stage 3)", "elements")
    gather_on_save: bool = _slot("whether a save collects 16-bit weights on one rank (stage 3)")
    hpz_partition: int = _slot(
        "ranks that share a secondary set of 16-bit shards to gather from; 1: none (stage 3)",
        "ranks",
    )
    leaf_modules: tuple[str, ...] | None = _slot(
        "classes whose parameters are gathered together (stage 3); none: DeepSpeed's own list"
    )


@dataclass(frozen=True, slots=True)
class Fsdp:
    """PyTorch FSDP: what is sharded, in which units, what is gathered ahead."""

    version: int = _slot("0 another engine, 1 FullyShardedDataParallel, 2 fully_shard")
    sharding: FsdpSharding = _slot(
        "full: everything; grad_op: parameters stay whole from forward to backward; "
        "hybrid: full inside a node; none: nothing"
    )
    offload_params: bool = _slot("whether shards, their gradients and optimizer states are on CPU")
    wrap: FsdpWrap = _slot("units: one per transformer layer, by size, or the whole model")
    wrap_classes: tuple[str, ...] = _slot("classes of the units; empty: those that the model names")
    min_parameters: int = _slot(
        "smallest size of a unit where units are formed by size", "parameters"
    )
    backward_prefetch: FsdpPrefetch = _slot(
        "when backward gathers the next unit; none: only when it is needed"
    )
    forward_prefetch: bool = _slot("whether forward gathers the next unit ahead (version 1)")
    use_orig_params: bool = _slot("whether the optimizer sees the model's own parameters")
    state_dict: StateDict = _slot("checkpoints: full, collected on one rank, or sharded")
    efficient_loading: bool = _slot("whether rank 0 alone reads the weights and broadcasts them")
    checkpointing: bool = _slot("whether FSDP makes layers recompute, instead of the model")


@dataclass(frozen=True, slots=True)
class ActivationCheckpointing:
    """Which activations are recomputed."""

    mode: Checkpointing = _slot("none, or layer: each layer keeps only its input")
    reentrant: bool = _slot("torch's reentrant variant; needs inputs that require gradients")
    segment: int = _slot("layers recomputed together, from the first one's input", "layers")
    gap: int = _slot("layers after each segment that are not recomputed; 0: none", "layers")
    offload: bool = _slot(
        "whether activations that wait for the backward pass are moved to host RAM"
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """How many samples move together: global = micro x accumulation x data parallel width."""

    micro: int = _slot("samples a device takes at once", "samples")
    accumulation: int = _slot("micro batches before one optimizer step")
    global_: int = _slot("samples in one optimizer step", "samples")
    evaluation: int = _slot("samples a device takes at once in evaluation", "samples")


@dataclass(frozen=True, slots=True)
class Launch:
    """How the processes are started."""

    launcher: Launcher = _slot("python, torchrun, deepspeed or accelerate")
    environment: tuple[tuple[str, str], ...] = _slot(
        "environment environment variables that must be set, in order"
    )
    script: str = _slot("the script or module that is started, with its arguments, as shell words")


GROUPS: Final[dict[str, type[Any]]] = {
    "model": Model,
    "devices": Devices,
    "data": Data,
    "precision": Precision,
    "attention": AttentionKernel,
    "quantization": Quantization,
    "adapter": Adapter,
    "objective": Objective,
    "generation": Generation,
    "evaluation": Evaluation,
    "loss": Loss,
    "optimizer": Optimizer,
    "parallel": Parallel,
    "states": States,
    "zero": Zero,
    "fsdp": Fsdp,
    "activation_checkpointing": ActivationCheckpointing,
    "batch": Batch,
    "schedule": Schedule,
    "runtime": Runtime,
    "launch": Launch,
    "job": Job,
}


@dataclass(frozen=True, slots=True)
class Slot:
    """One thing that can be decided."""

    path: str
    group: str
    attribute: str
    type: Any
    doc: str
    unit: str


def _slots_of(group: str, shape: type[Any]) -> tuple[Slot, ...]:
    return tuple(
        Slot(
            path=f"{group}.{each.name.rstrip('_')}",
            group=group,
            attribute=each.name,
            type=each.type,
            doc=each.metadata["doc"],
            unit=each.metadata["unit"],
        )
        for each in fields(shape)
    )


SLOTS: Final[dict[str, Slot]] = {
    slot.path: slot for group, shape in GROUPS.items() for slot in _slots_of(group, shape)
}
"""Every slot by its path, in the order of the groups."""
