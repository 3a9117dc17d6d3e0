"""What a module is to a run: where it stands, whether it is quantised, what adapters it carries."""

import re
from collections.abc import Iterable
from math import prod
from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.models.architecture import Architecture, Module, Part
from tunec.schemas.terms import QuantFormat

_READS_ATTENTION: Final = re.compile(
    r"(o_proj|out_proj|to_out\.0|to_add_out|attn\.proj|attention\.dense)$"
)
"""Projections of the attention's output, which its kernel keeps anyway."""
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

_FUSED_EXPERTS: Final = Version("5.0")
_ONCE_SEPARATE: Final = frozenset(
    {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2", "deepseek_v3"}
)
"""Families whose experts were linear layers of their own, which bitsandbytes quantises, before
transformers 5 made tensors of them, which it leaves (`models/<family>/modeling_<family>.py` in the
wheels 4.40.2, 4.46.3, 4.57.6, 5.0.0 and 5.23.0; DeepSeek's remote code too). Granite's always were
tensors."""

FOUR_BIT: Final[frozenset[QuantFormat]] = frozenset({"nf4", "fp4"})
"""Formats in which bitsandbytes packs two elements into a byte."""

_GATE_UP: Final = ".gate_up_proj"


def reads_attention(module: Module) -> bool:
    """Whether a layer's module reads what attention gives."""
    return bool(_READS_ATTENTION.search(module.path))


def is_after_attention(module: Module) -> bool:
    """Whether a layer's module reads what attention gives, or comes behind it."""
    return reads_attention(module) or is_in_feed_forward(module)


def is_in_feed_forward(module: Module) -> bool:
    """Whether a layer's module is part of its feed-forward."""
    return bool(_FEED_FORWARD.search(module.path))


def wants_gradient(model: Architecture, module: Module) -> bool:
    """Whether what a product reads may want a gradient: not what is made of time and text.

    diffusers 0.42 `transformer_flux.py`, `transformer_sd3.py`, `unet_2d_condition.py`: the inputs
    of these come from nothing that is trained.
    """
    return model.kind != "diffusion" or not _OF_CONDITIONS.search(module.path)


def tower_of(modules: Iterable[Module]) -> tuple[Module, ...]:
    """Those of some modules that only pictures pass."""
    return tuple(module for module in modules if module.part in _OF_PICTURES)


def quantizes(workload: Workload, module: Module) -> bool:
    """Whether the module's weight is stored quantised."""
    return (
        workload.quantization.format != "none"
        and (module.kind == "linear" or ("experts." in module.path and experts_apart(workload)))
        and module.part in QUANTIZED_PARTS
        and module.path != workload.architecture.head
    )


def experts_apart(workload: Workload) -> bool:
    """Whether each expert is linear layers of its own, run one expert after the other."""
    version = workload.version("transformers")
    family = workload.architecture.family
    return version is not None and version < _FUSED_EXPERTS and family in _ONCE_SEPARATE


def adapter_elements(workload: Workload, module: Module) -> int:
    """Elements of the adapters on all copies of a module (LoRA, arXiv 2106.09685, section 4.1).

    A has rank x inputs and B outputs x rank elements; a convolution's A takes the kernel. DoRA
    (arXiv 2402.09353) adds one magnitude an output.
    """
    magnitudes = module.shape[0] if workload.adapter.dora else 0
    pair = sum(map(prod, adapter_shapes(module, workload.adapter.rank)))
    return (pair + magnitudes) * module.copies


def adapter_shapes(module: Module, rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The shapes of A and B on one copy of a module.

    Those of experts in one tensor have a rank for each expert, twice where gate and up are one
    (peft 0.21 `tuners/lora/layer.py`, `ParamWrapper`; `utils/transformers_weight_conversion.py`).
    """
    outputs, *rest = module.shape
    if module.kind == "parameter" and len(rest) == 2:
        inner = rank * outputs * (2 if module.path.endswith(_GATE_UP) else 1)
        return (inner, rest[1]), (rest[0], inner)
    return (rank, prod(rest)), (outputs, rank)
