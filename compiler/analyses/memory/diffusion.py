"""Diffusion models: the transformers of SD3 and FLUX, and the UNet, in bytes per sample.

Text encoders and VAE (`Workload.components`) are unloaded before the denoiser is loaded, as
SimpleTuner does (`weights.encoders`); their activations do not count.
"""

import re
from operator import add
from typing import Final

from tunec.compiler.analyses.architecture.image_tokens import latent_frames
from tunec.compiler.analyses.memory.activations import (
    Activations,
    Layers,
    Pass,
    at_last,
    beside,
    kept,
    named,
)
from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.blocks import Tokens, block_activations, rows
from tunec.compiler.analyses.memory.lora import adapters_saved
from tunec.compiler.analyses.memory.unet import unet_activations
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Module, Stack

_FP32: Final = 4

TEXT_TOKENS: Final[dict[str, int]] = {"SD3Transformer2DModel": 333, "FluxTransformer2DModel": 512}
"""Text tokens that the pipeline of each class conditions on: 77 of CLIP and 256 of T5 for SD3, 512
of T5 for FLUX (diffusers 0.42 `pipelines/stable_diffusion_3`, `pipelines/flux`,
`max_sequence_length`). UNets attend to 77 of CLIP."""

_MODULATION: Final = re.compile(r"norm\w*\.linear$")
_TEXT_STREAM: Final = re.compile(r"\.add_|to_add_out|_context\b|context_embedder")


def image_elements(workload: Workload) -> tuple[int, int]:
    """Width and height of the latent of one sample."""
    model, data = workload.architecture, workload.data
    scale = model.latent_scale * max(model.latent_patch, 1)
    return data.image_width // scale, data.image_height // scale


def module_tokens(workload: Workload, module: Module) -> int:
    """Tokens of one sample that a module of a diffusion transformer works on.

    Double blocks have their own modules for the text; modulation and the embeddings of time and
    pooled text make one vector per sample (diffusers 0.42 `transformer_flux.py`).
    """
    measured = workload.architecture.denoiser
    if measured is not None:
        return round(rows(measured, module, _tokens(workload)))
    text = text_tokens(workload)
    if module.path.startswith("time_text_embed") or _MODULATION.search(module.path):
        return 1
    if _TEXT_STREAM.search(module.path):
        return text
    single = module.path.startswith("single_")
    return denoiser_tokens(workload) - (0 if single else text)


def denoiser_tokens(workload: Workload) -> int:
    """Tokens of one sample in a diffusion transformer: the image's and the text's."""
    return sum(_tokens(workload))


def attended_tokens(workload: Workload) -> float:
    """Tokens that attention sees: Z-Image joins four elements of the latent to one by itself."""
    found, given = _tokens(workload), workload.architecture.denoiser
    share = max(each.image for each in given.rows.values()) if given and given.rows else 1
    return share * found.image + found.text


def _tokens(workload: Workload) -> Tokens:
    """Tokens of one sample: the image's and the text's."""
    model = workload.architecture
    width, height = image_elements(workload)
    given, beside = model.denoiser, workload.data.image_tokens
    if given is not None:
        picture = width * height if width == height else max(width * height, given.oblong)
        picture *= latent_frames(model, workload.data.frames)
        text = given.text_tokens + seen_tokens(workload)
        return Tokens(given.filled(picture + beside), given.filled(text))
    return Tokens(width * height + beside, text_tokens(workload))


def given_pictures(workload: Workload) -> int:
    """The number of reference images of a sample."""
    return workload.data.images - 1 if workload.architecture.references else 0


def seen_tokens(workload: Workload) -> int:
    """Tokens of the reference images in the text encoder."""
    found = workload.architecture.references
    return found.seen * given_pictures(workload) if found else 0


def text_tokens(workload: Workload) -> int:
    """Text tokens that a sample conditions on, for models whose blocks were not measured."""
    text = TEXT_TOKENS.get(workload.architecture.family, 0) + seen_tokens(workload)
    return workload.data.sequence or text


@cached(2048)
def denoiser_activations(workload: Workload, run: Pass) -> Activations:
    """Activations of the denoiser."""
    widths = arithmetic(workload, run.states, "denoiser")
    if workload.architecture.unet:
        return unet_activations(workload, widths, checkpointed=run.checkpointed)
    if workload.architecture.denoiser is not None:
        return block_activations(workload, run, widths, _tokens(workload))
    tokens = denoiser_tokens(workload) / run.sequence_parallel
    stacks = workload.architecture.stacks
    layers = sum(stack.layers for stack in stacks)
    adapters = _adapters(workload, widths, several=not run.alone) / (
        layers * denoiser_tokens(workload)
    )
    seconds = second_attentions(workload)
    second = second_saved(stacks[0], widths) if seconds else 0
    one = [
        block_saved(stack, widths) + modulation_saved(workload, stack, widths) + adapters + second
        for stack in stacks
    ]
    most = max(one)
    lasts = [last_product(workload, stack, widths) for stack in stacks]
    works = [max(block_working(s, widths), last) for s, last in zip(stacks, lasts, strict=True)]
    working = max(map(add, one, works)) - most if run.checkpointed else max(works)
    # the result is in the dtype of products while a packed weight is expanded
    narrower = (widths.answer - widths.compute) * stacks[0].hidden
    expanding = max(map(add, lasts, one if run.checkpointed else (0,) * len(one))) - narrower
    final = tokens * final_saved(stacks[-1], widths)
    total = sum(saved * stack.layers for saved, stack in zip(one, stacks, strict=True))
    total -= second * (layers - seconds)
    sizes = (most, total / layers, working, widths.stream * stacks[0].hidden)
    held = Layers(*(tokens * size for size in sizes))
    # each list of blocks is cut for itself
    splits = [run.split(stack.layers) for stack in stacks]
    split = splits[-1]._replace(
        segments=sum(each.segments for each in splits), whole=sum(each.whole for each in splits)
    )
    others, name = beside(held, split), named("denoiser", split)
    layer = held.most + held.working
    return Activations(
        kept={**kept("denoiser", held, split, offload=run.offload, transit=1), "final norm": final},
        last_layer={name: at_last(held, splits[-1])},
        first_layer={name: layer + held.inputs},
        one_layer={name: held.most + held.inputs},
        forward={"denoiser forward pass": tokens * working},
        expanding={name: tokens * expanding},
        first_segment={name: layer + held.inputs + others} if others else {},
        moved=(held.inputs, split.segments) if run.offload else (0.0, 0),
    )


def _adapters(workload: Workload, widths: Arithmetic, *, several: bool) -> float:
    """Bytes of one sample that all adapters keep; `several`: the batch has more samples."""
    return adapters_saved(
        workload,
        workload.adapted,
        widths,
        lambda module: module_tokens(workload, module),
        several=several,
    )


def block_saved(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token that one block keeps, without adapters.

    Traced with diffusers 0.42 in bf16, with h for the hidden width and f for the inner one: a
    double block 40h + 4f trained and 20h + 2f if only gradients pass (FLUX; SD3 without norms on
    queries and keys 26h + 4f and 12h + 2f), a single block 36h + 4f and 20h + 2f.
    """
    if stack.joint == "single":
        return _single_saved(stack, widths)
    return _double_saved(stack, widths)


def modulation_saved(workload: Workload, stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token that adapters on the modulation of one block make it keep.

    Scale and gate then get gradients, which need the tensors that they multiply: the normed hidden
    state of each norm, and the outputs of attention and feed-forward, in a single block together
    (traced, diffusers 0.42 `transformer_flux.py`, with an adapter on every linear layer).
    """
    if widths.trained or _path_of(stack) not in _modulated_blocks(workload):
        return 0
    pairs = 1 if stack.joint == "single" else 2
    return pairs * (_norm_input(widths) + widths.answer) * stack.hidden


def _modulated_blocks(workload: Workload) -> frozenset[str]:
    """Lists of blocks whose modulation has adapters."""
    paths = (module.path for module in workload.adapted)
    return frozenset(path.partition(".")[0] for path in paths if _MODULATION.search(path))


def _path_of(stack: Stack) -> str:
    return "single_transformer_blocks" if stack.joint == "single" else "transformer_blocks"


def second_attentions(workload: Workload) -> int:
    """Double blocks in which the image attends to itself again (`dual_attention_layers`)."""
    return sum(
        module.copies
        for module in workload.architecture.modules
        if module.path.startswith("transformer_blocks") and module.path.endswith(".attn2.to_q")
    )


def second_saved(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token that such a second attention keeps, with input and gate if trained."""
    saved = _joint_attention(stack, widths)
    if widths.trained:
        saved += 2 * widths.compute * stack.hidden
        saved += widths.compute * stack.hidden * (widths.rotary == "concatenated")
    return saved


def _double_saved(stack: Stack, widths: Arithmetic) -> float:
    """Two streams, each with its own projections, norms and feed-forward."""
    hidden, trained = stack.hidden, widths.trained
    saved = _joint_attention(stack, widths) + 2 * _norm_input(widths) * hidden
    saved += widths.answer * stack.ffn * (2 if trained else 1)
    if trained:
        gates = 2 * widths.compute * hidden
        order = widths.compute * hidden if widths.rotary == "concatenated" else 0
        saved += 2 * _modulated(stack, widths) + gates + order
    return saved


def _single_saved(stack: Stack, widths: Arithmetic) -> float:
    """One stream, in which attention and feed-forward share their input and their last product."""
    hidden, trained = stack.hidden, widths.trained
    saved = _joint_attention(stack, widths) + _norm_input(widths) * hidden
    saved += widths.answer * stack.ffn
    if trained:
        product, gate = widths.compute * (hidden + stack.ffn), widths.compute * hidden
        saved += _modulated(stack, widths) + product + gate
    return saved


def _joint_attention(stack: Stack, widths: Arithmetic) -> float:
    """Queries, keys, values, output, and what the norms of queries and keys keep."""
    width = stack.heads * stack.head_dim
    normed = 2 * _query_norm(stack, widths) if stack.qk_norm else 0
    return width * 4 * widths.compute + normed + _FP32 * stack.heads


def _query_norm(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token that a norm of queries or keys keeps besides the kernel's inputs.

    Its input is the output of a product. diffusers' own norm (0.42 `models/normalization.py`,
    `RMSNorm`; SD3) keeps that, an fp32 copy of it and, if it is trained, the normed value in its
    weight's dtype. FLUX uses torch's, on CUDA one kernel since 2.9 (pytorch/pytorch#153666,
    `_fused_rms_norm`), which keeps its input and one number per head.
    """
    width = stack.heads * stack.head_dim
    if widths.rotary == "concatenated":
        copy = _FP32 if widths.answer < _FP32 else 0
        return width * (widths.answer + copy + widths.held * widths.trained)
    if widths.fused_norms:
        return width * (_FP32 if widths.wide_norms else widths.answer) + _FP32 * stack.heads
    return width * _FP32 * (2 if widths.trained else 1)


def _modulated(stack: Stack, widths: Arithmetic) -> float:
    """The normed hidden state, for the gradient of its scale, and the inputs of the products."""
    return (_norm_input(widths) + widths.compute) * stack.hidden


def _norm_input(widths: Arithmetic) -> int:
    """Bytes per element of LayerNorm's input, which autocast converts to fp32."""
    return _FP32 if widths.autocast else widths.stream


def final_saved(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token of the last, modulated norm."""
    return _norm_input(widths) * stack.hidden + (_modulated(stack, widths) if widths.trained else 0)


def block_working(stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token of gradients in flight; traced: 12h, 24h in a single block with adapters."""
    single = stack.joint == "single" and not widths.trained
    return widths.answer * stack.hidden * (12 if single else 6)


def last_product(workload: Workload, stack: Stack, widths: Arithmetic) -> float:
    """Bytes per token at a block's last product, besides what the block keeps; 0: all is trained.

    The activation, in a single block joined with the output of attention, and its copy in the dtype
    of products, which an adapter keeps; the output of attention, the modulated input, the result. A
    wider adapter reads a cast of its own (peft 0.21 `tuners/lora/layer.py`, `_cast_input_dtype`).
    Attention answers in the dtype of normed queries, and so does what it is joined to (diffusers
    0.42 `transformer_flux.py`, `FluxAttnProcessor`: `.to(query.dtype)`).
    """
    if widths.trained:
        return 0.0
    single = stack.joint == "single"
    read = stack.ffn + (stack.hidden if single else 0)
    path = f"{_path_of(stack)}.{{}}.{'proj_out' if single else 'ff.net.2'}"
    adapted = any(module.path == path for module in workload.adapted)
    joined = _FP32 if single and widths.wide_norms else widths.answer
    kept = adapted or joined == widths.compute
    cast = widths.adapter * read if adapted and widths.adapter > joined else 0
    made = cast + widths.answer * (stack.ffn + 2 * stack.hidden) + (joined * read if single else 0)
    return made + _norm_input(widths) * stack.hidden + (0 if kept else widths.compute * read)
