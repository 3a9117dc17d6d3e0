"""The slots: everything that can be decided, typed and addressed by path.

A group is a frozen struct, and each of its fields is a slot: `batch.micro` is field `micro` of
group `batch`, annotated with its meaning and its unit. A trailing underscore avoids a Python
keyword (`batch.global_` is slot `batch.global`). One pass decides a whole group, so a pass may read
any group that an earlier pass decides. Memory is counted in bytes; bucket sizes are counted in
elements, as DeepSpeed does.
"""

from typing import Annotated, Any, Final

from msgspec import Struct

from tunec.compiler.ir.answers import Generation, Ppo
from tunec.compiler.ir.loop import Job, Runtime, Schedule
from tunec.schemas.models.published_form import Published
from tunec.schemas.terms import (
    AdapterKind,
    AdapterMerge,
    Attention,
    Checkpointing,
    DataFormat,
    Engine,
    FloatDtype,
    FsdpPrefetch,
    FsdpSharding,
    FsdpWrap,
    Launcher,
    LossOn,
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


class Model(Struct, frozen=True):
    """Which model is trained, from the catalogue or its own config."""

    path: Annotated[str, "argument of `from_pretrained`: a repository name or a directory"]
    family: Annotated[str, "`model_type` of its config, or the diffusers class"]
    kind: Annotated[
        str,
        "causal-lm, vision-language, encoder-decoder, encoder, sequence-classifier, "
        "token-classifier or diffusion",
    ]
    parameters: Annotated[int, "all parameters, adapters not counted", "parameters"]
    trust_remote_code: Annotated[bool, "whether the model is built by code from its own repository"]
    published: Annotated[
        Published, "form of the published weights, expanded in loading: none, mxfp4 or fp8"
    ]


class Devices(Struct, frozen=True):
    """Which accelerators are used, and what they are."""

    model: Annotated[str, "catalogue name of the weakest device used"]
    vendor: Annotated[Vendor, "nvidia, amd, intel (Gaudi) or huawei (Ascend)"]
    nodes: Annotated[int, "nodes used", "nodes"]
    per_node: Annotated[int, "devices used on each node", "devices"]
    visible: Annotated[
        tuple[str, ...],
        "devices as `CUDA_VISIBLE_DEVICES` names them: PCI order numbers or UUIDs; empty: all",
    ]
    capability: Annotated[str | None, "compute capability of the weakest device, `7.0`"]
    memory: Annotated[int, "memory of the smallest device used, as the driver reports it", "bytes"]
    budget: Annotated[int, "how much of that the run may use", "bytes"]
    reserve: Annotated[
        int, "how much of that the run leaves free, unless that costs a tenth of the speed", "bytes"
    ]
    host_budget: Annotated[
        int | None, "host RAM of a node that the run may use; none: unknown", "bytes"
    ]


class Data(Struct, frozen=True):
    """What one sample is and how many there are."""

    train: Annotated[str, "training data: file, directory or data set name"]
    more: Annotated[tuple[str, ...], "more data of the epoch; what it sees n times stands n times"]
    limits: Annotated[tuple[int, ...], "most samples of each, from its first on; 0 or empty: all"]
    references: Annotated[tuple[str, ...], "folders of an edit model's reference images"]
    evaluation: Annotated[str | None, "evaluation data"]
    format: Annotated[
        DataFormat | None, "what a record looks like; none: as the trainer reads data by default"
    ]
    chat_template: Annotated[str | None, "`plain`, or a Jinja file; none: the tokenizer's own"]
    loss_on: Annotated[LossOn | None, "tokens that bear the loss; none: as the trainer takes them"]
    samples: Annotated[int | None, "training samples of an epoch; none: unknown", "samples"]
    sequence: Annotated[int, "most text tokens in one sample; 0 for diffusion", "tokens"]
    packing: Annotated[bool, "whether several samples share one sequence"]
    images: Annotated[int, "images in one sample", "images"]
    image_width: Annotated[int, "pixels; 0: no images", "pixels"]
    image_height: Annotated[int, "pixels; 0: no images", "pixels"]
    image_tokens: Annotated[int, "tokens that a sample's images add to the sequence", "tokens"]
    vision_tokens: Annotated[int, "patch tokens the vision tower runs for one sample", "tokens"]
    frames: Annotated[int, "frames of a training clip; 0: pictures, or text alone", "frames"]


class Precision(Struct, frozen=True):
    """The arithmetic in which the model trains, and how fp16 is kept from underflow."""

    compute: Annotated[FloatDtype, "dtype of matrix products in forward and backward"]
    loss_scaling: Annotated[LossScaling, "dynamic with fp16, none otherwise"]
    initial_scale_power: Annotated[int, "log2 of the first loss scale"]
    loss_scale_window: Annotated[int, "steps without overflow before the scale doubles", "steps"]
    hysteresis: Annotated[int, "overflows tolerated before the scale halves"]
    min_loss_scale: Annotated[int, "the scale never goes below this"]
    tf32: Annotated[bool, "whether fp32 products may use TF32 units"]
    deprecated_fp16: Annotated[bool, "DS_ALLOW_DEPRECATED_FP16: fp16 on compute capability 6.x"]


class AttentionKernel(Struct, frozen=True):
    """Which attention code runs."""

    implementation: Annotated[Attention, "eager, sdpa or flash_attention_2"]


class Quantization(Struct, frozen=True):
    """How the frozen base is stored."""

    format: Annotated[QuantFormat, "none, nf4, fp4 or int8 (bitsandbytes)"]
    double: Annotated[bool, "whether the block scales are quantised too"]
    compute: Annotated[FloatDtype, "dtype into which a weight is dequantised for matrix products"]
    storage: Annotated[FloatDtype | None, "dtype that holds packed 4-bit weights; none: uint8"]


class Adapter(Struct, frozen=True):
    """What is trained instead of the base, or beside it."""

    kind: Annotated[AdapterKind, "none: the model itself is trained"]
    rank: Annotated[int, "inner width of each adapter; 0: no adapter"]
    alpha: Annotated[float, "scale: output times alpha / rank (or / sqrt(rank))"]
    dropout: Annotated[float, "dropout: share of the adapter's input set to zero"]
    targets: Annotated[
        str | tuple[str, ...], "names by suffix, or one regex over whole module paths"
    ]
    parameters: Annotated[tuple[str, ...], "names of parameters that get adapters: experts"]
    bias: Annotated[str, "none, all or lora_only"]
    rslora: Annotated[bool, "scale by 1/sqrt(rank) (arXiv 2312.03732)"]
    dora: Annotated[bool, "train magnitude apart from direction (arXiv 2402.09353)"]
    merge: Annotated[
        AdapterMerge,
        "where the adapter is merged into the base after training: never, device or host",
    ]
    also_train: Annotated[tuple[str, ...], "modules trained in full beside the adapter"]
    frozen: Annotated[tuple[str, ...], "parts that full fine-tuning does not train"]
    trainable_parameters: Annotated[int, "parameters with gradients", "parameters"]


class Objective(Struct, frozen=True):
    """The training objective: given texts, preferred or rewarded answers, or rewards of answers."""

    kind: Annotated[
        ObjectiveKind, "sft, dpo (arXiv 2305.18290), grpo (2402.03300), ppo (1707.06347) or reward"
    ]
    loss: Annotated[
        str, "the variant of its loss; `nll` for sft, `clipped` for ppo, `sigmoid` for reward"
    ]
    beta: Annotated[float, "weight of the distance from the reference; 0: no reference"]
    reference: Annotated[
        Reference, "none, resident (a second model), base (adapters off) or precomputed"
    ]
    rewards: Annotated[tuple[str, ...], "functions that reward an answer (grpo, ppo); or none"]


class Evaluation(Struct, frozen=True):
    """What is computed on the evaluation data besides its loss; by default, nothing."""

    predictions: Annotated[
        Predictions, "loss, logits (kept for a metric) or answers (written for it)"
    ]
    prompt: Annotated[int, "most tokens of a prompt, without its images; 0: none", "tokens"]
    completion: Annotated[int, "most tokens of an answer; 0: none is written", "tokens"]
    beams: Annotated[int, "number of beams; 1: no beam search"]
    kept_batches: Annotated[
        int | None,
        "batches whose predictions stay on the device before they move to the host; "
        "none: all of them",
        "batches",
    ]


class Loss(Struct, frozen=True):
    """The code that turns hidden states into a loss."""

    path: Annotated[LossPath, "full (all logits at once), fused (Liger) or chunked (TRL)"]


class Optimizer(Struct, frozen=True):
    """The algorithm that updates the parameters."""

    name: Annotated[OptimizerName, "the algorithm"]
    kernel: Annotated[OptimizerKernel, "implementation of the optimizer"]
    learning_rate: Annotated[float, "the highest learning rate of the schedule"]
    beta1: Annotated[float, "decay of the first moment"]
    beta2: Annotated[float, "decay of the second moment"]
    epsilon: Annotated[float, "added to the denominator"]
    weight_decay: Annotated[float, "decoupled weight decay"]
    max_grad_norm: Annotated[float, "gradients are clipped to this norm; 0: not clipped"]


class Parallel(Struct, frozen=True):
    """How the devices share the work."""

    engine: Annotated[Engine, "none (one process), ddp, deepspeed or fsdp"]
    world: Annotated[int, "number of processes, one per device", "processes"]
    data: Annotated[int, "data parallel width", "processes"]
    tensor: Annotated[int, "tensor parallel width", "processes"]
    sequence: Annotated[int, "sequence parallel width", "processes"]


class States(Struct, frozen=True):
    """The dtype of each kind of training state; follows from precision and engine."""

    weights: Annotated[FloatDtype, "dtype in which the base model is loaded (before quantisation)"]
    trainable: Annotated[FloatDtype, "dtype of the parameters that gradients flow to"]
    gradients: Annotated[FloatDtype, "dtype in which gradients are accumulated"]
    master_weights: Annotated[
        bool, "whether the engine keeps fp32 copies of the trained parameters"
    ]
    optimizer: Annotated[StateDtype, "dtype of the optimizer's moments"]
    autocast: Annotated[bool, "whether precision is mixed: by autocast, or by FSDP 2's own casts"]


class Zero(Struct, frozen=True):
    """DeepSpeed ZeRO: what is sharded, what is offloaded, and in which portions."""

    stage: Annotated[
        int, "what is sharded: 0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters"
    ]
    offload_optimizer: Annotated[Offload, "where optimizer states live: none (device), cpu, nvme"]
    offload_param: Annotated[Offload, "where parameter shards live (stage 3): none, cpu, nvme"]
    nvme_path: Annotated[str | None, "directory on the local NVMe for offload"]
    pin_memory: Annotated[bool, "whether offload buffers are page-locked"]
    overlap_comm: Annotated[bool, "whether gradient reduction overlaps the backward pass"]
    contiguous_gradients: Annotated[
        bool, "whether gradients are copied to one contiguous buffer as they are produced"
    ]
    reduce_scatter: Annotated[bool, "reduce-scatter instead of all-reduce for gradients"]
    reduce_bucket: Annotated[int, "elements reduced at once", "elements"]
    allgather_bucket: Annotated[int, "elements gathered at once (stages 1 and 2)", "elements"]
    prefetch_bucket: Annotated[int, "elements fetched ahead (stage 3)", "elements"]
    persistence_threshold: Annotated[int, "smaller parameters stay whole (stage 3)", "elements"]
    max_live_parameters: Annotated[int, "most elements kept whole (stage 3)", "elements"]
    max_reuse_distance: Annotated[
        int, "keep a parameter if it is reused within this many elements (stage 3)", "elements"
    ]
    sub_group_size: Annotated[int, "elements updated at once (stage 3)", "elements"]
    gather_on_save: Annotated[bool, "whether a save collects 16-bit weights on one rank (stage 3)"]
    hpz_partition: Annotated[
        int,
        "ranks that share a secondary set of 16-bit shards to gather from; 1: none (stage 3)",
        "ranks",
    ]
    leaf_modules: Annotated[
        tuple[str, ...] | None,
        "classes whose parameters are gathered together (stage 3); none: DeepSpeed's own list",
    ]


class Fsdp(Struct, frozen=True):
    """PyTorch FSDP: what is sharded, in which units, and what is prefetched."""

    version: Annotated[int, "0 another engine, 1 FullyShardedDataParallel, 2 fully_shard"]
    sharding: Annotated[
        FsdpSharding,
        "full: everything; grad_op: parameters stay whole from forward to backward; "
        "hybrid: full inside a node; none: nothing",
    ]
    offload_params: Annotated[
        bool, "whether shards, their gradients and optimizer states are on CPU"
    ]
    wrap: Annotated[FsdpWrap, "units: one per transformer layer, by size, or the whole model"]
    wrap_classes: Annotated[
        tuple[str, ...], "classes of the units; empty: those that the model names"
    ]
    min_parameters: Annotated[
        int, "smallest size of a unit where units are formed by size", "parameters"
    ]
    backward_prefetch: Annotated[
        FsdpPrefetch, "when backward gathers the next unit; none: only when it is needed"
    ]
    forward_prefetch: Annotated[bool, "whether forward gathers the next unit ahead (version 1)"]
    use_orig_params: Annotated[bool, "whether the optimizer sees the model's own parameters"]
    state_dict: Annotated[StateDict, "checkpoints: full, collected on one rank, or sharded"]
    efficient_loading: Annotated[bool, "whether rank 0 alone reads the weights and broadcasts them"]
    checkpointing: Annotated[bool, "whether FSDP makes layers recompute, instead of the model"]


class ActivationCheckpointing(Struct, frozen=True):
    """Which activations are recomputed."""

    mode: Annotated[Checkpointing, "none, or layer: each layer keeps only its input"]
    reentrant: Annotated[bool, "torch's reentrant variant; needs inputs that require gradients"]
    segment: Annotated[int, "layers recomputed together, from the first one's input", "layers"]
    gap: Annotated[int, "layers after each segment that are not recomputed; 0: none", "layers"]
    offload: Annotated[
        bool, "whether activations that wait for the backward pass are moved to host RAM"
    ]


class Batch(Struct, frozen=True):
    """How many samples move together: global = micro x accumulation x data parallel width."""

    micro: Annotated[int, "samples a device takes at once", "samples"]
    accumulation: Annotated[int, "micro batches before one optimizer step"]
    global_: Annotated[int, "samples in one optimizer step", "samples"]
    evaluation: Annotated[int, "samples a device takes at once in evaluation", "samples"]


class Launch(Struct, frozen=True):
    """How the processes are started."""

    launcher: Annotated[Launcher, "python, torchrun, deepspeed or accelerate"]
    environment: Annotated[tuple[tuple[str, str], ...], "variables that must be set, in order"]
    script: Annotated[
        str, "the script or module that is started, with its arguments, as shell words"
    ]


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
    "ppo": Ppo,
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


class Slot(Struct, frozen=True):
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
            path=f"{group}.{name.rstrip('_')}",
            group=group,
            attribute=name,
            type=annotated.__origin__,
            doc=annotated.__metadata__[0],
            unit="".join(annotated.__metadata__[1:]),
        )
        for name, annotated in shape.__annotations__.items()
    )


SLOTS: Final[dict[str, Slot]] = {
    slot.path: slot for group, shape in GROUPS.items() for slot in _slots_of(group, shape)
}
"""Every slot by its path, in the order of the groups."""
