"""The models and devices that Liger's kernels support: families by release, and devices."""

from typing import Final

from packaging.version import Version

_FAMILIES: Final[dict[Version, frozenset[str]]] = {
    Version("0.2"): frozenset({"gemma", "llama", "mistral", "phi3", "qwen2"}),
    Version("0.4"): frozenset({"gemma2", "mixtral", "mllama", "qwen2_vl"}),
    Version("0.5.10"): frozenset(
        {"gemma3", "gemma3_text", "glm4", "llava", "olmo2", "paligemma", "qwen2_5_vl", "qwen3"}
        | {"qwen3_moe"}
    ),
    Version("0.6.4"): frozenset(
        {"falcon_h1", "glm4v", "glm4v_moe", "hunyuan_v1_dense", "hunyuan_v1_moe", "internvl"}
        | {"llama4", "llama4_text", "olmo3", "qwen3_next", "qwen3_vl", "qwen3_vl_moe", "smollm3"}
        | {"smolvlm"}
    ),
    Version("0.8"): frozenset(
        {"exaone4", "gemma4_text", "gpt_oss", "ministral", "nemotron", "qwen3_5", "qwen3_5_moe"}
    ),
}
"""liger-kernel 0.2.1, 0.4.2, 0.5.10, 0.6.4 and 0.8.0 transformers/monkey_patch.py
`MODEL_TYPE_TO_APPLY_LIGER_FN`: the families whose function turns `fused_linear_cross_entropy` on by
itself, so not granite and pixtral. A family counts from the first of these releases that has it."""

_OLDEST_DEVICE: Final = (7, 0)
"""torch 2.13.0 _dynamo/device_interface.py `CudaInterface.is_triton_capable`: Triton, in which
Liger's kernels are written, compiles for compute capability 7.0 and newer."""


_OWN_PRODUCTS: Final = frozenset({"qwen3_vl"})
"""liger-kernel 0.8.0 transformers/monkey_patch.py: the families above whose function leaves gated
products to the model (`swiglu: bool = False`)."""


def fuses_products(family: str) -> bool:
    """Whether the function that fuses a family's loss also has the gated product in one kernel."""
    return family not in _OWN_PRODUCTS


def refusal(family: str, capability: tuple[int, int] | None, version: Version) -> str | None:
    """Why a release of liger-kernel cannot fuse the loss of a family on a device; None if it can.

    `capability`: of the weakest device; None if the device is not NVIDIA's.
    """
    if not any(version >= since and family in named for since, named in _FAMILIES.items()):
        return f"liger-kernel {version} has no fused loss for {family}"
    if capability is not None and capability < _OLDEST_DEVICE:
        held = ".".join(map(str, capability))
        return f"Liger's kernels are Triton's, which needs compute capability 7.0, not {held}"
    return None
