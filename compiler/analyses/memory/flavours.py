"""How families differ in what their layers keep, where an architecture's shape does not tell.

Each entry was read in transformers 5.23 `models/<family>/modeling_<family>.py` and checked with a
trace (`tests/analyses/memory/test_families.py`); models with code of their own name their source.
"""

from typing import Final, Literal

from tunec.schemas.frozen import dataclass
from tunec.schemas.models.architecture import Part

Activation = Literal["single", "relu", "quick", "expanded"]
"""`single`: one operation that keeps its input. `relu` keeps its output, which is the next layer's
input. `quick`: x * sigmoid(1.702 x), keeps both factors. `expanded`: GELU's tanh form written out
(`activations.py`, `NewGELUActivation`), keeps four tensors."""

Norm = Literal["plain", "wide", "centred", "double"]
"""`plain`: RMSNorm casts back before it multiplies by its weight, LayerNorm is torch's own. `wide`:
RMSNorm multiplies in fp32. `centred`: LayerNorm written out in fp32 (Cohere). `double`: RMSNorm
keeps its input besides its fp32 copy (T5)."""

Rotary = Literal["none", "whole", "concatenated"]
"""`whole`: queries and keys are rotated where they lie. `concatenated`: put together from a rotated
and another part, which leaves them head by head in memory, so that the attention's output has to be
copied for its projection."""

Router = Literal["narrow", "wide", "double"]
"""In which dtype the router's weights multiply the experts' results: `narrow`, the stream's;
`wide`, fp32; `double`: fp32, and the router itself reads an fp32 copy of its input."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """What the shape of a layer does not tell."""

    activation: Activation = "single"
    norm: Norm = "plain"
    rotary: Rotary = "whole"
    router: Router = "wide"
    biased: bool = False
    """Whether self attention adds a bias a head."""
    own_biases: bool = False
    """Whether each layer makes that from relative positions of its own, and a cross attention one
    of zeros (transformers 5.23 `models/umt5/modeling_umt5.py`, `UMT5Attention.forward`)."""
    shares_norm_inputs: bool = False
    """Whether the norms before attention and feed-forward read the same tensor, which torch's
    LayerNorm then keeps once."""
    crosses: bool = False
    """Whether a decoder layer attends to the encoder after itself."""
    norms_after: bool = False
    """Whether layers normalise what attention and feed-forward give, and not what they read."""
    eager: bool = False
    """Whether attention makes its scores as tensors unless it is FlashAttention."""
    wide_queries: bool = False
    """Whether it multiplies queries and keys in fp32 then."""
    narrow_scores: bool = False
    """Whether eager attention takes its softmax in the dtype of the product, not in fp32."""


_T5: Final = frozenset({"t5", "mt5", "umt5"})
_ENCODER_DECODER: Final = _T5 | {"bart", "mbart"}
_PARALLEL_NORMS: Final = frozenset({"gpt_neox"})
"""`use_parallel_residual`, as every published Pythia and GPT-NeoX-20B sets it."""
_EXPANDED: Final = frozenset({"gpt2", "gptj", "gpt_neo", "codegen", "phi"})
_RELU: Final = frozenset({"opt"}) | _T5
_WIDE_NORM: Final = frozenset({"gemma", "gemma2", "gemma3", "gemma3_text", "olmo2", "olmo3"})
_NORMS_AFTER: Final = frozenset({"olmo2", "olmo3", "bart", "bert", "roberta", "xlm-roberta"})
_CENTRED_NORM: Final = frozenset({"cohere", "cohere2"})
_UNROTATED: Final = (
    frozenset({"gpt2", "gpt_bigcode", "gpt_neo", "opt", "bloom", "mpt"}) | _ENCODER_DECODER
)
_CONCATENATED: Final = frozenset(
    {"phi", "phi3", "glm", "glm4", "gpt_neox", "stablelm", "gptj", "codegen", "chatglm"}
)
_NARROW_ROUTER: Final = frozenset({"qwen2_moe", "qwen3_moe", "olmoe", "granitemoe"})
_DOUBLE_ROUTER: Final = frozenset({"deepseek_v2", "deepseek_v3"})
_QUICK_TOWERS: Final = frozenset({"llava", "llava_next", "qwen2_vl"})
_NARROW_SCORES: Final = _ENCODER_DECODER | {"gpt2", "falcon", "bert", "roberta"}
_WIDE_QUERIES: Final = frozenset({"gptj", "codegen", "gpt_neo"})
"""Families that multiply queries and keys in fp32 (`GPTJAttention._attn` and its like)."""
_ALWAYS_EAGER: Final = _WIDE_QUERIES | {"bloom", "mpt"}
"""Families that add a bias a head to scores of their own making (`BloomAttention.forward`,
`MptAttention.forward`), or whose class says nothing of `_supports_sdpa`."""
_EAGER_TOWERS: Final = frozenset({"minicpmv"})
"""openbmb/MiniCPM-Llama3-V-2_5 and MiniCPM-V-2_6 `modeling_minicpmv.py`, `init_vision_module`: the
tower is `eager` unless the model asks for `flash_attention_2`."""
_HEAD_BY_HEAD: Final = frozenset({"SD3Transformer2DModel"})
"""Denoisers that join both streams head by head; FLUX rotates token by token (traced)."""
_ROTATED_TOWERS: Final = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl"})


def flavour(family: str, part: Part) -> Flavour:
    """Look up what is special about a family's layers in one part."""
    if part == "text":
        return Flavour(
            _activation(family),
            _norm(family),
            _rotary(family),
            _router(family),
            biased=family in _T5,
            own_biases=family == "umt5",
            shares_norm_inputs=family in _PARALLEL_NORMS,
            crosses=family in _ENCODER_DECODER,
            norms_after=family in _NORMS_AFTER,
            eager=family in _ALWAYS_EAGER,
            wide_queries=family in _WIDE_QUERIES,
            narrow_scores=family in _NARROW_SCORES,
        )
    if part == "vision":
        activation: Activation = "quick" if family in _QUICK_TOWERS else "single"
        rotary: Rotary = "whole" if family in _ROTATED_TOWERS else "none"
        return Flavour(activation, rotary=rotary, eager=family in _EAGER_TOWERS)
    return Flavour(rotary="concatenated" if family in _HEAD_BY_HEAD else "whole")


def _activation(family: str) -> Activation:
    if family in _EXPANDED:
        return "expanded"
    return "relu" if family in _RELU else "single"


def _norm(family: str) -> Norm:
    if family in _CENTRED_NORM:
        return "centred"
    if family in _T5:
        return "double"
    return "wide" if family in _WIDE_NORM else "plain"


def _rotary(family: str) -> Rotary:
    if family in _UNROTATED:
        return "none"
    return "concatenated" if family in _CONCATENATED else "whole"


def _router(family: str) -> Router:
    if family in _NARROW_ROUTER:
        return "narrow"
    return "double" if family in _DOUBLE_ROUTER else "wide"
