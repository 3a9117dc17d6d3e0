"""The role of a module in a run, and differences of families that the shape does not show.

Of a module: where it stands, whether it is quantised, what adapters it carries, how many bytes its
elements take. Each entry of a family was read in transformers 5.23
`models/<family>/modeling_<family>.py` and checked with a trace
(`tests/analyses/memory/test_families.py`); models with code of their own name their source.
"""

import re
from collections.abc import Iterable
from math import prod
from typing import Final, Literal

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.analyses.architecture import rank_factor
from tunec.compiler.analyses.architecture.derive import EAGER_FAMILIES
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import Quantization
from tunec.schemas.models.architecture import Architecture, Kind, Module, Part
from tunec.schemas.terms import QuantFormat, StateDtype

BYTES: Final[dict[StateDtype, int]] = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}

PACKED: Final = 0.5
"""Bytes of a 4-bit element without scales."""

_FOUR_BIT_BLOCK: Final = 64
"""Elements that share a scale in 4-bit storage (bitsandbytes 0.43, `functional.quantize_4bit`)."""
_SCALE_BLOCK: Final = 256
"""Block scales that share a scale when they are quantised too (`compress_statistics`)."""


def quantized_bytes(quantization: Quantization) -> float:
    """Bytes an element of a quantised weight, scales of rows not counted.

    QLoRA (arXiv 2305.14314, section 3): 0.5 + 4/64 = 0.5625; with double quantisation
    0.5 + 1/64 + 4/(64 x 256) = 0.5159. LLM.int8() (arXiv 2208.07339) stores one byte.
    """
    if quantization.format == "int8":
        return 1
    if quantization.double:
        return PACKED + 1 / _FOUR_BIT_BLOCK + 4 / (_FOUR_BIT_BLOCK * _SCALE_BLOCK)
    return PACKED + 4 / _FOUR_BIT_BLOCK


_READS_ATTENTION: Final = re.compile(
    r"(o_proj|out_proj|to_out\.(0|\{\})|to_add_out|attn\.(c_)?proj|att(entio)?n\.(output\.)?dense)$"
)
"""Projections of the attention's output, which the attention kernel keeps anyway."""
_FEED_FORWARD: Final = re.compile(r"(mlp|ffn|feed_forward|experts|fc1|fc2|ff)\b")
_OF_CONDITIONS: Final = re.compile(
    r"(norm\w*\.linear|time_emb_proj|attn2\.to_[kv])$"
    r"|^(time_|add_embedding|x_embedder|context_embedder|pos_embed|conv_in)"
)
_OF_PICTURES: Final[frozenset[Part]] = frozenset({"vision", "projector"})

QUANTIZED_PARTS: Final[frozenset[Part]] = frozenset({"text", "denoiser"})
"""Where linear layers are quantised. transformers would also quantise those of a vision tower
(`quantizers/base.py`, `get_keys_to_not_convert` names only the head and tied weights): whoever
writes its config names the tower in `llm_int8_skip_modules`."""

FUSED_EXPERTS: Final = Version("5.0")
"""The transformers that holds all experts of a layer in two tensors."""
_ONCE_SEPARATE: Final = frozenset(
    {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2", "deepseek_v3"}
)
"""Families whose experts were linear layers of their own, which bitsandbytes quantises, before
transformers 5 made tensors of them, which it leaves (`models/<family>/modeling_<family>.py` in the
wheels 4.40.2, 4.46.3, 4.57.6, 5.0.0 and 5.23.0; DeepSeek's remote code too). Granite's always were
tensors."""

FOUR_BIT: Final[frozenset[QuantFormat]] = frozenset({"nf4", "fp4"})
"""Formats in which bitsandbytes packs two elements into a byte."""

_LEFT_OF_T5: Final = ".wo"
"""What transformers quantises in no model of T5's kind (`models/t5/modeling_t5.py`,
`T5PreTrainedModel._keep_in_fp32_modules`; `quantizers/base.py`, `get_modules_to_not_convert`)."""


def reads_attention(module: Module) -> bool:
    """Whether a layer's module reads the attention's output."""
    return bool(_READS_ATTENTION.search(module.path))


def is_after_attention(module: Module) -> bool:
    """Whether a layer's module reads the attention's output, or comes after it."""
    return reads_attention(module) or is_in_feed_forward(module)


def is_in_feed_forward(module: Module) -> bool:
    """Whether a layer's module is part of its feed-forward."""
    return bool(_FEED_FORWARD.search(module.path))


def is_embedding_norm(module: Module) -> bool:
    """Whether a norm precedes the first text layer, by its name in BERT, BART and Bloom."""
    return _is_around(module, "norm") and "embed" in module.path


_ENCODER: Final = ("encoder.", "model.encoder.", "led.encoder.")


def is_in_encoder(module: Module) -> bool:
    """Whether a module is in the encoder that comes before a decoder."""
    return module.path.startswith(_ENCODER)


def is_encoder_norm(module: Module) -> bool:
    """Whether a norm follows the layers of an encoder that a decoder reads."""
    ahead = "embed" not in module.path and "encoder." in module.path
    return _is_around(module, "norm") and ahead


def drops_embedding(model: Architecture) -> bool:
    """Whether dropout applies to the first text layer's input, as it does to layers' outputs."""
    return model.dropout.states and model.family not in _EMBEDDING_WHOLE


def is_position_table(model: Architecture, module: Module) -> bool:
    """Whether a table besides the tokens' own is added to the first text layer's input."""
    is_wide = module.shape[-1] == model.hidden and module.path != model.embedding
    return _is_around(module, "embedding") and is_wide


def norms_first(model: Architecture, part: Part) -> bool:
    """Whether a norm precedes a tower's layers, as in CLIP, Llama 3.2 and Llama 4.

    transformers 5.23 `models/clip/modeling_clip.py`, `pre_layrnorm`; `models/mllama`,
    `layernorm_pre`.
    """
    norms = (m for m in model.modules if m.part == part == "vision" and m.kind == "norm")
    return any(m.path.endswith((".pre_layrnorm", ".layernorm_pre")) for m in norms)


def norms_after(model: Architecture, part: Part) -> bool:
    """Whether layers normalise the outputs of attention and feed-forward, not the inputs.

    By its family, or since no norm follows the last layer (OPT 350M: `do_layer_norm_before`).
    """
    if flavour(model.family, part).norms_after:
        return True
    around = [each for each in model.modules if _is_around(each, "norm")]
    return part == "text" and model.family == "opt" and not around


def _is_around(module: Module, kind: Kind) -> bool:
    return module.kind == kind and module.part == "text" and "{}" not in module.path


def wants_gradient(model: Architecture, module: Module) -> bool:
    """Whether a product's input may need a gradient, unlike those made of time and text.

    diffusers 0.42 `transformer_flux.py`, `transformer_sd3.py`, `unet_2d_condition.py`: these inputs
    do not depend on any trained weight.
    """
    return model.kind != "diffusion" or not _OF_CONDITIONS.search(module.path)


def tower_of(modules: Iterable[Module]) -> tuple[Module, ...]:
    """The modules that only images pass."""
    return tuple(module for module in modules if module.part in _OF_PICTURES)


def quantizes(workload: Workload, module: Module) -> bool:
    """Whether the module's weight is stored quantised; a new head is trained, and cannot be."""
    return (
        workload.quantization.format != "none"
        and (module.kind == "linear" or ("experts." in module.path and experts_apart(workload)))
        and module.part in QUANTIZED_PARTS
        and module.path not in (workload.architecture.head, *workload.architecture.new)
        and not (workload.architecture.family in _T5 and module.path.endswith(_LEFT_OF_T5))
    )


def experts_apart(workload: Workload) -> bool:
    """Whether each expert has its own linear layers, which run one expert after the other."""
    version = workload.version("transformers")
    family = workload.architecture.family
    return version is not None and version < FUSED_EXPERTS and family in _ONCE_SEPARATE


def is_stack(module: Module) -> bool:
    """Whether a module is the weights of all experts in one tensor."""
    return module.kind == "parameter" and len(module.shape) == 3


def adapter_elements(workload: Workload, module: Module) -> int:
    """Elements of the adapters on all copies of a module (LoRA, arXiv 2106.09685, section 4.1).

    A has rank x inputs and B outputs x rank elements; a convolution's A takes the kernel. DoRA
    (arXiv 2402.09353) adds one magnitude an output.
    """
    magnitudes = module.shape[0] if workload.adapter.dora else 0
    pair = sum(map(prod, adapter_shapes(workload, module)))
    return (pair + magnitudes) * module.copies


def adapter_shapes(workload: Workload, module: Module) -> tuple[tuple[int, int], tuple[int, int]]:
    """The shapes of A and B on one copy of a module.

    Those of experts in one tensor have a rank for each expert
    (peft 0.21 `tuners/lora/layer.py`, `ParamWrapper`).
    """
    rank = workload.adapter.rank
    outputs, *rest = module.shape
    if module.kind == "parameter" and len(rest) == 2:
        inner = rank * outputs * rank_factor(workload.architecture, module)
        return (inner, rest[1]), (rest[0], inner)
    return (rank, prod(rest)), (outputs, rank)


Activation = Literal["single", "own", "relu", "quick", "expanded"]
"""`single`: one operation that keeps its input. `relu` keeps its output, which is the next layer's
input. `quick`: x * sigmoid(1.702 x), keeps both factors. `expanded`: GELU's tanh form written out
(`activations.py`, `NewGELUActivation`), keeps four tensors. `own`: GELU with a backward pass of its
own, which works in six (`models/bloom/modeling_bloom.py`, `bloom_gelu_back`)."""

Norm = Literal["plain", "narrow", "upcast", "wide", "centred", "double"]
"""`plain`: RMSNorm casts back before it multiplies by its weight, LayerNorm is torch's own.
`narrow`: that LayerNorm, whose result keeps the dtype of its input under autocast (transformers
5.23 `NemotronLayerNorm1P`). `upcast`: it does so from an fp32 copy (`OlmoLayerNorm`,
`DebertaLayerNorm`). `wide`: RMSNorm multiplies in fp32. `centred`: LayerNorm written out in fp32
(Cohere). `double`: RMSNorm keeps its input besides its fp32 copy (T5)."""

Rotary = Literal["none", "whole", "concatenated"]
"""`whole`: queries and keys are rotated where they lie. `concatenated`: put together from a rotated
and another part, which leaves them head by head in memory, so that the attention's output has to be
copied for its projection."""

Router = Literal["narrow", "wide", "double"]
"""In which dtype the router's weights multiply the experts' results: `narrow`, the stream's;
`wide`, fp32; `double`: fp32, and the router itself reads an fp32 copy of its input."""


class Flavour(Struct, frozen=True):
    """Properties of a layer that its shape does not show."""

    activation: Activation = "single"
    norm: Norm = "plain"
    rotary: Rotary = "whole"
    router: Router = "wide"
    gates_shared: bool = False
    """Whether shared experts run before the routed ones, and a gate weights their output."""
    biased: bool = False
    """Whether self attention adds a bias for each head."""
    own_biases: bool = False
    """Whether each layer makes that from relative positions of its own, and a cross attention one
    of zeros (transformers 5.23 `models/umt5/modeling_umt5.py`, `UMT5Attention.forward`)."""
    shares_norm_inputs: bool = False
    """Whether the norms before attention and feed-forward read the same tensor, which torch's
    LayerNorm then keeps once."""
    widens_inner: bool = False
    """Whether the feed-forward brings what its second product reads to that weight's dtype
    (transformers 5.23 `models/t5/modeling_t5.py`, `T5DenseActDense.forward`)."""
    crosses: bool = False
    """Whether a decoder layer attends to the encoder after self attention."""
    norms_after: bool = False
    """Whether layers normalise the outputs of attention and feed-forward, not the inputs."""
    norms_first: bool = False
    """Whether the stream begins with the output of a norm of the embedding."""
    eager: bool = False
    """Whether attention computes its scores as tensors unless it is FlashAttention."""
    wide_queries: bool = False
    """Whether it then multiplies queries and keys in fp32."""
    narrow_scores: bool = False
    """Whether eager attention takes its softmax in the dtype of the product, not in fp32."""


_T5: Final = frozenset({"t5", "mt5", "umt5"})
_BART_FIRST: Final = frozenset({"mbart", "m2m_100", "pegasus", "blenderbot"})
_BART_AFTER: Final = frozenset({"bart", "plbart", "marian", "blenderbot-small"})
"""BART and related families, by whether layers normalise their inputs or their outputs."""
BART: Final = _BART_FIRST | _BART_AFTER
_ENCODER_DECODER: Final = _T5 | BART
_PARALLEL_NORMS: Final = frozenset({"gpt_neox"})
"""`use_parallel_residual`, as every published Pythia and GPT-NeoX-20B sets it."""
_EXPANDED: Final = frozenset({"gpt2", "gptj", "gpt_neo", "codegen", "phi"})
_RELU: Final = frozenset({"opt", "m2m_100", "pegasus"}) | _T5
_WIDE_NORM: Final = frozenset({"gemma", "gemma2", "gemma3", "gemma3_text", "olmo2", "olmo3"})
_NORMS_AFTER: Final = frozenset(
    {"olmo2", "olmo3", "bert", "roberta", "xlm-roberta"}
    | _BART_AFTER
    | {"camembert", "distilbert", "electra", "mpnet"}
)
_EMBEDDING_WHOLE: Final = frozenset({"opt", "bloom", "falcon", "phi3"})
"""Families that drop what layers give back, and nothing of the embedding (transformers 5.23
`models/<family>/modeling_<family>.py`)."""
_NORMS_FIRST: Final = frozenset({"modernbert", "bloom", "mbart"})
_NARROW_NORM: Final = frozenset({"nemotron"})
_UPCAST_NORM: Final = frozenset({"olmo", "deberta"})
_CENTRED_NORM: Final = frozenset({"cohere", "cohere2"})
_UNROTATED: Final = (
    frozenset({"gpt2", "gpt_bigcode", "gpt_neo", "opt", "bloom", "mpt"}) | _ENCODER_DECODER
)
_CONCATENATED: Final = frozenset(
    {"phi", "phi3", "glm", "glm4", "gpt_neox", "stablelm", "gptj", "codegen", "chatglm"}
    | {"glm4_moe", "glm4v", "glm4v_moe", "glm_ocr", "minimax_m2", "bamba", "nemotron"}
)
_NARROW_ROUTER: Final = frozenset({"qwen2_moe", "qwen3_moe", "olmoe", "granitemoe"})
_DOUBLE_ROUTER: Final = frozenset({"deepseek_v2", "deepseek_v3"})
_GATED_SHARED: Final = frozenset({"qwen2_moe"})
_QUICK_TOWERS: Final = frozenset({"llava", "llava_next", "qwen2_vl"})
_NARROW_SCORES: Final = _ENCODER_DECODER | {"gpt2", "falcon", "bert", "roberta"}
_WIDE_QUERIES: Final = frozenset({"gptj", "codegen", "gpt_neo"})
"""Families that multiply queries and keys in fp32 (`GPTJAttention._attn` and similar)."""
_EAGER_TOWERS: Final = frozenset({"minicpmv"})
"""openbmb/MiniCPM-Llama3-V-2_5 and MiniCPM-V-2_6 `modeling_minicpmv.py`, `init_vision_module`: the
tower is `eager` unless the model asks for `flash_attention_2`."""
_HEAD_BY_HEAD: Final = frozenset({"SD3Transformer2DModel"})
"""Denoisers that join both streams head by head; FLUX rotates token by token (traced)."""
_ROTATED_TOWERS: Final = frozenset(
    {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"}
    | {"mistral3", "gemma4", "llama4", "kimi_k25", "glm4v", "glm4v_moe"}
)


def flavour(family: str, part: Part) -> Flavour:
    """Look up the properties of a family's layers in one part."""
    if part == "text":
        return Flavour(
            _activation_of(family),
            _norm(family),
            _rotary(family),
            _router(family),
            gates_shared=family in _GATED_SHARED,
            biased=family in _T5,
            own_biases=family == "umt5",
            shares_norm_inputs=family in _PARALLEL_NORMS,
            widens_inner=family in _T5,
            crosses=family in _ENCODER_DECODER,
            norms_after=family in _NORMS_AFTER,
            norms_first=family in _NORMS_FIRST,
            eager=family in EAGER_FAMILIES,
            wide_queries=family in _WIDE_QUERIES,
            narrow_scores=family in _NARROW_SCORES,
        )
    if part == "vision":
        activation: Activation = "quick" if family in _QUICK_TOWERS else "single"
        rotary: Rotary = "whole" if family in _ROTATED_TOWERS else "none"
        return Flavour(activation, rotary=rotary, eager=family in _EAGER_TOWERS)
    return Flavour(rotary="concatenated" if family in _HEAD_BY_HEAD else "whole")


_ACTIVATIONS: Final[dict[str, Activation]] = {
    **dict.fromkeys(("gelu", "gelu_pytorch_tanh", "silu", "swish"), "single"),
    "gelu_new": "expanded",
    "quick_gelu": "quick",
    "relu": "relu",
}
"""By the word of a config (transformers 5.23 `activations.py`, `ACT2CLS`)."""


def activation_of(model: Architecture, part: Part) -> Activation:
    """What the activation of a part's feed-forwards keeps, by its name in the config.

    For gated ones, and if the config has none, the family's usual activation.
    """
    usual = flavour(model.family, part).activation
    gated = any(stack.gated for stack in model.stacks if stack.part == part)
    return usual if gated or part != "text" else _ACTIVATIONS.get(model.activation, usual)


def _activation_of(family: str) -> Activation:
    if family in _EXPANDED:
        return "expanded"
    if family == "bloom":
        return "own"
    return "relu" if family in _RELU else "single"


def _norm(family: str) -> Norm:
    if family in _CENTRED_NORM:
        return "centred"
    if family in _T5:
        return "double"
    if family in _NARROW_NORM:
        return "narrow"
    if family in _UPCAST_NORM:
        return "upcast"
    return "wide" if family in _WIDE_NORM else "plain"


def _rotary(family: str) -> Rotary:
    if family in _UNROTATED:
        return "none"
    return "concatenated" if family in _CONCATENATED else "whole"


def _router(family: str) -> Router:
    if family in _NARROW_ROUTER:
        return "narrow"
    return "double" if family in _DOUBLE_ROUTER else "wide"
