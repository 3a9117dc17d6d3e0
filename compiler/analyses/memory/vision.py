"""The vision tower and the projector, in bytes per sample of the micro batch."""

from collections.abc import Iterable
from math import inf, prod
from typing import Final

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.analyses.memory.activations import Activations, Pass, part_activations
from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.counts import Counts, count
from tunec.compiler.analyses.memory.layers import gives_fp32, norm_saved
from tunec.compiler.analyses.memory.modules import BYTES, norms_first
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Module

_NEVER_CHECKPOINTED: Final = frozenset({"chatglm"})
"""Families whose own vision code has no checkpointing: glm-4v-9b's `visual.py` runs its layers in a
plain loop (`Transformer.forward`), and LoRA with its tower takes 75 GB on one card (THUDM/GLM-4
b9d6d38, `finetune_demo/README_en.md`, checkpointing on)."""


_EMBEDDED_FIRST: Final = frozenset(
    {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "llava", "llava_next", "gemma3", "paligemma"}
    | {"internvl", "mistral3", "qwen3_5", "qwen3_5_moe", "qwen3_vl_moe"}
    | {"gemma4", "llama4", "kimi_k25"}
)
"""Families that embed the text before they run the tower, so that the tower is differentiated
before the embedding (transformers 5.23 `models/<family>/modeling_<family>.py`, `forward`: the call
of `get_input_embeddings` stands above that of `get_image_features`; autograd goes backward)."""

_IN_PARTS: Final = frozenset(
    {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"}
    | {"qwen2_5_omni_thinker", "glm4v", "glm4v_moe", "glm_ocr", "paddleocr_vl"}
    | {"kimi_k25", "minicpmv4_6"}
)
"""Families whose towers give each picture, or each of its windows, to a kernel of its own and join
the results, unless that kernel is FlashAttention (transformers 5.23
`models/qwen3_vl/modeling_qwen3_vl.py`, `Qwen3VLVisionAttention.forward`: `torch.cat(attn_outputs)`,
and the others' likewise)."""

_POOLED: Final = frozenset({"gemma3"})
"""Families whose projector pools the patches of a square."""

_MODELS_OF_THEIR_OWN: Final = _EMBEDDED_FIRST | {"mllama", "idefics3", "smolvlm"}
"""Families whose tower is a `PreTrainedModel` with an input embedding."""

_EVERY_EMBEDDING: Final = Version("5.0")
"""Read in 4.57.6 (one embedding), 5.0.0, 5.6.2, 5.17.0 and 5.23.0 (all)."""


class Images(Struct, frozen=True):
    """The memory of one sample's images."""

    forward: Sizes
    """While a tower without gradients runs, one layer at a time."""
    kept: Sizes
    """From the tower's forward pass until its backward pass."""
    backward: Sizes
    """What differentiating one layer of the tower needs besides."""
    after_embedding: bool = False
    """Whether all of it is freed when the embedding is differentiated."""
    moved: tuple[float, int] = (0.0, 0)
    """Bytes of one tensor that waits on the host, and the number of such tensors."""


NO_IMAGES: Final = Images({}, {}, {})


def image_activations(workload: Workload, run: Pass) -> Images:
    """Activations of vision tower and projector.

    A frozen tower keeps nothing, since nothing in it needs a gradient; with adapters or training it
    keeps everything, or each layer's input if it is checkpointed.
    """
    data = workload.data
    stacks = [stack for stack in workload.architecture.stacks if stack.part == "vision"]
    if not data.vision_tokens or not stacks:
        return NO_IMAGES
    counts = count(workload)
    tower, wanted = _tower(workload, run), _wants_gradients(workload, run)
    projector = _projector(workload, counts, run, passed=wanted)
    first = workload.architecture.family in _EMBEDDED_FIRST
    if "vision" in counts.trained_parts | counts.adapted_parts or wanted:
        ends = _ends(workload, run, required=wanted)
        trained = _trained_ends(workload, run, counts)
        beside = (_joined(workload, run), _scaled(workload, run), _mask(workload, run))
        kept = {**tower.kept, **_all(each.kept for each in beside), **projector, **ends, **trained}
        last = {**tower.last_layer, **_all(each.backward for each in beside)}
        return Images({}, kept, last, first, tower.moved)
    forward = {**tower.forward, **_mask(workload, run).forward}
    return Images(forward, projector, {}, after_embedding=first)


def masks_together(workload: Workload) -> bool:
    """Whether a tower takes all pictures of a batch for one sequence with a mask, as Pixtral's.

    transformers 5.23 `models/pixtral/modeling_pixtral.py`, `PixtralVisionModel.forward` and
    `generate_block_attention_mask`; FlashAttention needs none.
    """
    images, kernel = workload.architecture.images, workload.attention.implementation
    together = images is not None and images.rule == "pixtral" and kernel == "sdpa"
    return together and bool(workload.data.vision_tokens)


def _mask(workload: Workload, run: Pass) -> Images:
    """One sample's share of that mask, which has a row and a column for each patch of the batch.

    It has the dtype of the stream; autocast keeps a cast in each layer (torch 2.13
    `aten/src/ATen/autocast_mode.h`, `scaled_dot_product_attention` in
    `AT_FORALL_LOWER_PRECISION_FP`).
    """
    if not masks_together(workload):
        return NO_IMAGES
    name, widths = "mask between pictures", arithmetic(workload, run.states, "vision")
    layers = sum(s.layers for s in workload.architecture.stacks if s.part == "vision")
    split = _tower_pass(workload, run).split(layers)
    compared = run.together * workload.data.vision_tokens**2
    itself = float(widths.stream * compared)
    cast = float(widths.compute * compared) if widths.compute < widths.stream else 0.0
    kept = cast * split.whole + (itself if split.segments or not cast else 0.0)
    again = {name: cast} if cast and split.segments else {}
    return Images({name: itself + cast}, {name: kept}, again)


def _joined(workload: Workload, run: Pass) -> Images:
    """What a trained output projection reads: the results of several kernels in one tensor."""
    model, split = workload.architecture, _tower_pass(workload, run)
    widths = arithmetic(workload, run.states, "vision")
    flash = workload.attention.implementation.startswith("flash")
    if model.family not in _IN_PARTS or flash or not widths.trained:
        return NO_IMAGES
    stack = next(stack for stack in model.stacks if stack.part == "vision")
    layers = split.split(stack.layers)
    size = float(widths.compute * workload.data.vision_tokens * stack.hidden)
    whole = {"joined pictures": size * layers.whole} if layers.whole else {}
    return Images({}, whole, {"joined pictures": size} if layers.segments else {})


def _scaled(workload: Workload, run: Pass) -> Images:
    """What the trained scales of a layer's residuals multiply.

    transformers 5.23 `models/internvl/modeling_internvl.py`, `InternVLVisionLayer.forward`:
    `self.lambda_1 * attention_output`; `models/mllama/modeling_mllama.py`,
    `MllamaVisionEncoderLayer.forward`: `self.gate_attn.tanh() * hidden_state`.
    """
    widths = arithmetic(workload, run.states, "vision")
    inside = (m for m in workload.architecture.modules if m.part == "vision" and "{}" in m.path)
    scales = sum(m.copies for m in inside if m.kind == "parameter" and len(m.shape) == 1)
    if not scales or not widths.trained:
        return NO_IMAGES
    stacks = [stack for stack in workload.architecture.stacks if stack.part == "vision"]
    split = _tower_pass(workload, run).split(sum(stack.layers for stack in stacks))
    size = widths.answer * workload.data.vision_tokens * stacks[0].hidden * scales / split.layers
    name = "scaled residuals of pictures"
    whole = {name: size * split.whole} if split.whole else {}
    return Images({}, whole, {name: size} if split.segments else {})


def _all(sizes: Iterable[Sizes]) -> Sizes:
    return {name: size for each in sizes for name, size in each.items()}


def pictures(workload: Workload, samples: int) -> Sizes:
    """Pixels of the images of all samples of a step, as processors give them: in fp32.

    The trainer fetches the micro batches of a step together, and its loader has put each on the
    device (transformers 5.23 `trainer.py`, `get_batch_samples`; accelerate 1.15 `data_loader.py`,
    `DataLoaderShard.__iter__`).
    """
    first = _cut(workload.architecture)
    if first is None or not workload.data.images:
        return {}
    size = BYTES["fp32"] * workload.data.vision_tokens * prod(first.shape[1:])
    return {"images": float(size * samples)}


def _cut(model: Architecture) -> Module | None:
    """The product that makes patches of pixels."""
    cut = (m for m in model.modules if m.part == "vision" and "patch" in m.path)
    return next((module for module in cut if module.kind in ("conv", "linear")), None)


def _wants_gradients(workload: Workload, run: Pass) -> bool:
    """Whether a gradient passes a frozen tower, because its biases or its inputs require one.

    peft trains every bias with `bias="all"` (0.21 `tuners/lora/model.py`,
    `_mark_only_adapters_as_trainable`).

    With adapters and checkpointing, `enable_input_require_grads` marks the output of every input
    embedding, including the tower's (peft 0.21 `peft_model.py`,
    `_prepare_model_for_gradient_checkpointing`, and for quantised bases
    `prepare_model_for_kbit_training`; transformers 5.23 `modeling_utils.py`: each submodule that is
    a `PreTrainedModel`).
    """
    if workload.adapter.bias == "all" and any(
        module.bias for module in workload.architecture.modules if module.part == "vision"
    ):
        return True
    own = workload.architecture.family in _MODELS_OF_THEIR_OWN
    return own and workload.adapter.kind == "lora" and run.checkpointed and not _old(workload)


def _old(workload: Workload) -> bool:
    """Whether only the whole model's own embedding is marked, as before transformers 5."""
    version = workload.version("transformers")
    return version is not None and version < _EVERY_EMBEDDING


def _tower(workload: Workload, run: Pass) -> Activations:
    data, alone = workload.data, _tower_pass(workload, run)
    widths = arithmetic(workload, run.states, "vision")
    keys = min(data.vision_tokens / max(data.images, 1), _slice_tokens(workload))
    return part_activations(workload, alone, "vision", widths, data.vision_tokens, keys)


def _tower_pass(workload: Workload, run: Pass) -> Pass:
    """The pass of the tower, whose layers are recomputed one by one or not at all."""
    checkpointed = run.checkpointed and workload.architecture.family not in _NEVER_CHECKPOINTED
    alone = replace(run, checkpointed=checkpointed, padded=False, sequence_parallel=1)
    return replace(alone, segment=1, gap=0)


def _slice_tokens(workload: Workload) -> float:
    """Tokens that attend to each other if an image is split: those of one slice."""
    images = workload.architecture.images
    if images is None or images.max_slices <= 1 or not images.patch:
        return inf
    return float((images.image_size // images.patch) ** 2 + images.lead_tokens)


def _ends(workload: Workload, run: Pass, *, required: bool) -> Sizes:
    """Bytes kept outside a tower's layers if its embedding requires a gradient.

    The graph holds that embedding, to a copy of which positions are added, and the inputs of norms.
    """
    model, widths = workload.architecture, arithmetic(workload, run.states, "vision")
    if not required:
        return {}
    hidden = next(stack.hidden for stack in model.stacks if stack.part == "vision")
    before = norms_first(model, "vision")
    # features are taken ahead of the last norm where one stands before the layers
    norms = 1 if before else sum(_is_around(module) for module in model.modules)
    read = BYTES["fp32"] if widths.autocast else widths.stream
    size = workload.data.vision_tokens * hidden * (widths.held + norms * read)
    return {"vision embedding": size}


def _trained_ends(workload: Workload, run: Pass, counts: Counts) -> Sizes:
    """Bytes kept outside a tower's layers for gradients of its own weights.

    What norms there and in the projector keep, and pixels in the dtype of the product that cuts
    them into patches.
    """
    model, widths = workload.architecture, arithmetic(workload, run.states, "vision")
    stack = next(stack for stack in model.stacks if stack.part == "vision")
    each = norm_saved(stack, widths) / stack.hidden
    size = each * sum(
        _normed_elements(workload, module, stack.hidden)
        for module in model.modules
        if module.kind == "norm" and module.part in counts.trained_parts
    )
    cut = _cut(model)
    if cut is not None and "vision" in counts.trained_parts and widths.compute < BYTES["fp32"]:
        size += widths.compute * workload.data.vision_tokens * prod(cut.shape[1:])
    return {"vision ends": size} if size else {}


def _normed_elements(workload: Workload, module: Module, hidden: int) -> int:
    """Elements of one sample's images in a norm outside of a tower's layers; 0: it is no such."""
    model, data = workload.architecture, workload.data
    if module.part == "vision" and "{}" not in module.path:
        # features are taken ahead of the last norm where one stands before the layers
        unread = norms_first(model, "vision") and "post" in module.path
        return 0 if unread else data.vision_tokens * hidden
    if module.part != "projector":
        return 0
    merges = any(m.part == "projector" and m.shape[-1] > hidden for m in model.modules)
    whole = merges and module.shape[-1] == hidden
    rows = data.vision_tokens if whole else data.image_tokens
    return module.copies * rows * module.shape[-1]


def _is_around(module: Module) -> bool:
    return module.part == "vision" and module.kind == "norm" and "{}" not in module.path


def _projector(workload: Workload, counts: Counts, run: Pass, *, passed: bool) -> Sizes:
    """Inputs of the projector's layers if it is trained, outputs if a gradient passes.

    `passed`: whether a gradient passes on to the tower, though neither is trained.
    """
    needs = counts.trained_parts | counts.adapted_parts
    if not passed and not needs & {"vision", "projector"}:
        return {}
    widths = arithmetic(workload, run.states, "projector")
    size = workload.data.image_tokens * _projector_widths(workload, widths)
    return {"projector activations": size + _pooled(workload, run)}


def _pooled(workload: Workload, run: Pass) -> float:
    """Bytes of a tower's result that is pooled in another order than the tower gives it.

    transformers 5.23 `models/gemma3/modeling_gemma3.py`, `Gemma3MultiModalProjector.forward`:
    `reshaped_vision_outputs.contiguous()`, which `avg_pool2d` keeps.
    """
    model, widths = workload.architecture, arithmetic(workload, run.states, "vision")
    stack = next(stack for stack in model.stacks if stack.part == "vision")
    if model.family not in _POOLED:
        return 0.0
    width = BYTES["fp32"] if gives_fp32(stack, widths) else widths.stream
    return float(width * workload.data.vision_tokens * stack.hidden)


def _projector_widths(workload: Workload, widths: Arithmetic) -> float:
    """Bytes per token: the tensors between two layers, and each layer's input if it is trained."""
    linears = [
        module
        for module in workload.architecture.modules
        if module.part == "projector" and module.kind == "linear"
    ]
    between = sum(module.shape[0] * module.copies for module in linears)
    read = sum(module.shape[1] * module.copies for module in linears) if widths.trained else 0
    return widths.compute * (between + read)
