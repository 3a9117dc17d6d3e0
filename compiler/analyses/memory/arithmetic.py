"""The arithmetic of one part of a model, which every activation formula uses."""

from typing import Final

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.analyses import liger
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.modules import (
    BYTES,
    FOUR_BIT,
    QUANTIZED_PARTS,
    Activation,
    Flavour,
    Norm,
    Rotary,
    Router,
    activation_of,
    experts_apart,
    flavour,
    is_stack,
    norms_after,
    norms_first,
)
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import States
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Architecture, Module, Part, Stack

_FUSED_RMS_NORM: Final = Version("2.9")
"""The first release of torch with `aten::_fused_rms_norm` on CUDA."""
_WIDE_RMS_NORM: Final = Version("2.12")
"""The first release of torch whose autocast runs its own RMSNorm in fp32 (pytorch/pytorch#174824;
huggingface/diffusers#14104 read the dispatcher of 2.6 to 2.12, and ran 2.8 and 2.12 on a GPU)."""

_KEEPS_NO_INPUTS: Final = Version("0.43.2")

_GROUPED_QUERIES: Final = Version("4.54")
_PLAIN_OPT: Final = Version("4.49")
"""The first release whose eager OPT takes no `torch.max` of scores and `finfo.min`, which keeps
both for its backward pass (`models/opt/modeling_opt.py`, read in 4.28.1 to 4.49.0)."""
_BOOLEAN_MASKS: Final = Version("4.53")
"""The first transformers that let torch repeat keys and values where there is no mask
(`integrations/sdpa_attention.py`, `use_gqa_in_sdpa`), and with `masking_utils.py`, whose masks for
sdpa are boolean; before, `_update_causal_mask` made one in the model's dtype. Read in the wheels
4.40.2, 4.44.2, 4.46.3, 4.51.3, 4.52.4, 4.53.3, 4.54.1 and 4.57.6."""


class Arithmetic(Struct, frozen=True):
    """Bytes per element of each kind of activation, and the special properties of the layers."""

    stream: int
    """The residual stream: the dtype of the embedding and of every sum."""
    held: int
    """The weights of layers in their stored dtype."""
    compute: int
    """The inputs and outputs of matrix products."""
    answer: int
    """What a projection of the normed hidden state gives, adapters added. bitsandbytes' 4-bit layer
    converts its result to the dtype of its input, fp32 where norms and residual stream are
    (0.50.2 `nn/modules.py`, `Linear4bit.forward`: `.to(inp_dtype)`)."""
    adapter: int
    """The adapters' own dtype."""
    norm: Norm
    normed: int
    """The normed value that an RMSNorm keeps for its weight's gradient."""
    autocast: bool
    trained: bool
    """Whether the weights of this part themselves get gradients."""
    keeps_inputs: bool
    """Whether matrix products keep what they multiply: for their weight's gradient, or because
    bitsandbytes' 4-bit ones did until 0.43.1 (`autograd/_functions.py`, `MatMul4Bit.forward`:
    `ctx.tensors = (A, B)`; 0.43.2 keeps B alone)."""
    eager: bool
    """Whether attention scores are computed as tensors."""
    wide_queries: bool
    """Whether queries and keys are multiplied in fp32 then, which autocast would narrow."""
    wide_scores: bool
    """Whether their softmax is in fp32, as autocast has every softmax."""
    floors_scores: bool
    """Whether the masked scores are kept, as they are compared with their dtype's least number."""
    half: bool
    """Whether the stream is in fp16: a mask in fp32 or bf16 makes the scores of autocast wider."""
    activation: Activation
    copies_inner: bool
    """Whether what the second product reads is brought to its weight's dtype, and autocast's from
    there: a copy."""
    rotary: Rotary
    router: Router
    biased: bool
    """Whether self attention adds one bias per head, expanded for each layer."""
    own_biases: bool
    """Whether each layer computes this bias from its own table."""
    shares_norm_inputs: bool
    """Whether the norms before attention and feed-forward read the same tensor."""
    crosses: bool
    """Whether decoder layers attend to the encoder as well as to themselves."""
    fused_norms: bool
    """Whether torch's own RMSNorm is one kernel."""
    wide_norms: bool
    """Whether torch's own RMSNorm reads and gives fp32, as autocast has it."""
    readers: float
    """The number of linear layers that read a normed hidden state, per layer."""
    fused_qkv: bool
    """Whether one projection gives queries, keys and values, of which values are a view."""
    fused_gate: bool
    """Whether one projection gives gate and up, and carries an adapter."""
    reads_product: bool
    """Whether an adapter reads the product of gate and up."""
    drops: bool
    """Whether adapters apply dropout to their input."""
    masks: bool
    """Whether attention is torch's `scaled_dot_product_attention`, which may get a mask."""
    repeats: bool
    """Whether this function always gets keys and values repeated for each query head."""
    shares_mask: bool
    """Whether its mask is a bias that all layers share, instead of one made in each layer."""
    experts_apart: bool
    """Whether experts run one after the other, each with separate linear layers."""
    trains_experts: bool
    """Whether the weights of routed experts get gradients, directly or through adapters."""
    gates_shared: bool
    """Whether shared experts come before the routed ones, and a gate weights their output."""
    liger_norms: bool
    """Whether RMSNorms are Liger's, which keep their input (liger-kernel 0.3.1 to 0.8.0
    `ops/rms_norm.py`, `LigerRMSNormFunction`)."""
    way: str
    """The way of computing by which measured layers are known (`way`)."""
    liger_products: bool
    """Whether gated products are Liger's, which keep gate and up alone and write both gradients
    over them (the same, `ops/swiglu.py`, `LigerSiLUMulFunction`; `ops/geglu.py`)."""

    @property
    def casts_norms_apart(self) -> bool:
        """Whether neighbouring norms that read one tensor each keep an fp32 copy of it."""
        return self.shares_norm_inputs and self.autocast and self.stream < BYTES["fp32"]

    @property
    def casts(self) -> bool:
        """Whether every product casts its weight: autocast over fp32 weights."""
        return self.compute < self.held

    @property
    def adapter_product(self) -> int:
        """Bytes an element of what the adapters multiply: their own dtype without autocast."""
        return self.compute if self.autocast else self.adapter

    @property
    def adapters_share_inputs(self) -> bool:
        """Whether adapters read the base's own inputs, because there is no cast between them."""
        return self.adapter == self.compute == self.stream


def way(*, trained: bool, held: int, autocast: bool, packed: bool, eager: bool) -> str:
    """The name of a kind of arithmetic; `held`: bytes per element of the stored weights."""
    words = ("autocast" if autocast else "", "packed" if packed else "", "eager" if eager else "")
    return " ".join(("trained" if trained else "frozen", str(held), *filter(None, words)))


def _way(workload: Workload, states: States, held: int, *, trained: bool, eager: bool) -> str:
    packed = workload.quantization.format in FOUR_BIT
    return way(trained=trained, held=held, autocast=states.autocast, packed=packed, eager=eager)


@cached(1024)
def arithmetic(workload: Workload, states: States, part: Part) -> Arithmetic:
    """Determine the arithmetic of a part of the model."""
    trained = part in count(workload).trained_parts
    full = workload.adapter.kind == "none" and trained
    held = states.trainable if full else states.weights
    special = flavour(workload.architecture.family, part)
    stacks = [stack for stack in workload.architecture.stacks if stack.part == part]
    packed = workload.quantization.format in FOUR_BIT and part in QUANTIZED_PARTS
    widened = states.autocast and _is_widened(workload.architecture, part, stacks, packed=packed)
    stream = BYTES["fp32" if widened else held]
    linears = [m for m in workload.architecture.modules if m.part == part and m.kind == "linear"]
    inside = [module for module in linears if "{}" in module.path]
    adapted = [module for module in workload.adapted if module.part == part]
    compute = BYTES[workload.precision.compute if states.autocast else held]
    masks = workload.attention.implementation == "sdpa" and part == "text"
    patched = _has_liger(workload, part)
    eager, torch = _is_eager(workload, special), workload.version("torch")
    return Arithmetic(
        stream=stream,
        held=BYTES[held],
        compute=compute,
        answer=stream if packed else compute,
        adapter=BYTES[states.trainable],
        norm=special.norm,
        normed=BYTES["fp32"] if special.norm == "wide" else stream,
        autocast=states.autocast,
        trained=trained,
        keeps_inputs=trained or (packed and _keeps_inputs(workload)),
        eager=eager,
        wide_queries=eager and special.wide_queries and not states.autocast,
        wide_scores=states.autocast or not special.narrow_scores,
        floors_scores=workload.architecture.family == "opt" and _is_before(workload, _PLAIN_OPT),
        half=held == "fp16",
        activation=_activation(workload.architecture, part, stacks),
        copies_inner=special.widens_inner and compute < BYTES[held],
        rotary=special.rotary,
        router=special.router,
        biased=special.biased,
        own_biases=special.own_biases,
        shares_norm_inputs=special.shares_norm_inputs or _has_norm_beside(workload.architecture),
        crosses=special.crosses or workload.architecture.kind == "encoder-decoder",
        fused_norms=(torch or _FUSED_RMS_NORM) >= _FUSED_RMS_NORM,
        wide_norms=states.autocast and (torch or _WIDE_RMS_NORM) >= _WIDE_RMS_NORM,
        readers=_readers(inside, stacks),
        fused_qkv=_views_values(workload.architecture.family, inside, stacks),
        fused_gate=any(is_fused_gate(m, stack) for m in adapted for stack in stacks),
        reads_product=any(m.shape[-1] == stack.ffn for m in adapted for stack in stacks),
        drops=workload.adapter.dropout > 0,
        masks=masks,
        repeats=masks and _repeats(workload, stacks),
        shares_mask=_is_before(workload, _BOOLEAN_MASKS),
        experts_apart=experts_apart(workload),
        trains_experts=trained or any(map(is_stack, adapted)),
        gates_shared=special.gates_shared,
        way=_way(workload, states, BYTES[held], trained=trained, eager=eager),
        liger_norms=patched,
        liger_products=patched and liger.fuses_products(workload.architecture.family),
    )


def _has_liger(workload: Workload, part: Part) -> bool:
    """Whether Liger patches a part: what turns its loss on turns all of its kernels on.

    transformers 4.57.1 trainer.py `__init__`: `_apply_liger_kernel_to_instance`, whose flags are
    those that each family's function defaults to. Images' towers are left as they are.
    """
    named = workload.version("liger-kernel") is not None
    return named and workload.loss == "fused" and part == "text"


def _keeps_inputs(workload: Workload) -> bool:
    version = workload.version("bitsandbytes")
    return version is not None and version < _KEEPS_NO_INPUTS


def _is_before(workload: Workload, release: Version) -> bool:
    version = workload.version("transformers")
    return version is not None and version < release


def _views_values(family: str, inside: list[Module], stacks: list[Stack]) -> bool:
    """Whether the values are a view of a fused projection.

    CodeGen puts them in order. Falcon picks them by a list of indices, unless each head has its
    own (transformers 5.23 `models/falcon/modeling_falcon.py`, `FalconAttention._split_heads`;
    `models/codegen/modeling_codegen.py`, `CodeGenAttention._split_heads`).
    """
    shared = any(stack.kv_heads < stack.heads for stack in stacks)
    copied = family == "codegen" or (family == "falcon" and shared)
    return not copied and any(is_fused_qkv(m, stack) for m in inside for stack in stacks)


def _has_norm_beside(model: Architecture) -> bool:
    """Whether the feed-forward has a norm beside attention's (Falcon's `ln_mlp`)."""
    return any(module.path.endswith(".ln_mlp") for module in model.modules)


def _repeats(workload: Workload, stacks: list[Stack]) -> bool:
    """Whether keys and values are repeated without a mask too, as Falcon's class always does."""
    grouped = workload.architecture.family == "falcon" and any(s.kv_heads > 1 for s in stacks)
    return grouped or _is_before(workload, _GROUPED_QUERIES)


def _is_eager(workload: Workload, special: Flavour) -> bool:
    implementation = workload.attention.implementation
    always = special.eager or workload.architecture.eager
    return implementation == "eager" or (always and implementation == "sdpa")


def _is_widened(model: Architecture, part: Part, stacks: list[Stack], *, packed: bool) -> bool:
    """Whether the stream is what LayerNorms give, which autocast has in fp32.

    All of it (BART, BERT), or the embedding that layers add to (ModernBERT, CLIP). And wherever
    bitsandbytes' 4-bit products answer in the dtype of what the norm gave them (`answer`).
    A denoiser may bring that back to the dtype of its stream; its measured blocks show it.
    """
    if part == "text" and (model.wide_stream or (packed and model.activation in _WIDE)):
        return True
    special = flavour(model.family, part)
    first = special.norms_first or norms_first(model, part)
    normed = (packed and _answers_wide(stacks)) or norms_after(model, part) or first
    plain = special.norm == "plain"
    return normed and plain and all(stack.norm == "layer" for stack in stacks)


_WIDE: Final = frozenset({"xielu"})
"""Activations that autocast computes in fp32 (torch 2.13 aten/src/ATen/autocast_mode.h: expm1),
which 4-bit products then give to the stream."""


def _answers_wide(stacks: list[Stack]) -> bool:
    """Whether blocks keep more if their products are packed; so if they are not measured."""
    narrow = way(trained=False, held=2, autocast=True, packed=False, eager=False)
    packed = way(trained=False, held=2, autocast=True, packed=True, eager=False)
    measured = [{each.way: each.saved for each in s.blocks} for s in stacks if s.blocks]
    return not measured or any(found.get(packed) != found.get(narrow) for found in measured)


def _activation(model: Architecture, part: Part, stacks: list[Stack]) -> Activation:
    """T5's gate is an expanded GELU, and UL2's a SiLU; T5's first release had ReLU and none."""
    named = activation_of(model, part)
    if named != "relu" or not any(stack.gated for stack in stacks):
        return named
    return "single" if model.activation == "gated-silu" else "expanded"


def _readers(linears: list[Module], stacks: list[Stack]) -> float:
    layers = sum(stack.layers for stack in stacks)
    if not layers:
        return 0
    reading = sum(m.copies for m in linears if m.shape[1] == stacks[0].hidden)
    # The attention's output projection reads the heads, which may be as wide as the hidden state.
    as_wide = sum(s.layers for s in stacks if s.heads * s.head_dim == s.hidden)
    return (reading - as_wide) / layers


def is_fused_qkv(module: Module, stack: Stack) -> bool:
    """Whether one projection computes queries, keys and values together."""
    return module.shape[0] >= (stack.heads + 2 * stack.kv_heads) * stack.head_dim and (
        "qkv" in module.path or "query_key_value" in module.path or "c_attn" in module.path
    )


def is_fused_gate(module: Module, stack: Stack) -> bool:
    """Whether one projection computes a gate and its factor together."""
    return stack.gated and module.shape == (2 * stack.ffn, stack.hidden)
