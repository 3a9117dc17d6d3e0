"""The releases of ms-swift that rows were read from, and the packages of each."""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.ir.plan import Plan
from tunec.compiler.releases import Releases, row_at

PACKAGE: Final = "ms-swift"
TRAINER: Final = "transformers"
RELEASES: Final = ("4.0.4", "4.3.2", "4.6.0")
SUPPORTED: Final = Releases(">=4.0,<4.7")

_RANGES: Final = (
    ("4.0", {"transformers": ">=4.33,<5.4", "peft": ">=0.11,<0.19", "trl": ">=0.15,<0.30"}),
    ("4.1", {"transformers": ">=4.33,<5.7", "peft": ">=0.11,<0.20", "trl": ">=0.15,<0.30"}),
    ("4.2", {"transformers": ">=4.33,<5.9", "peft": ">=0.11,<0.20", "trl": ">=0.15,<1.0"}),
    ("4.3", {"transformers": ">=4.33,<5.13", "peft": ">=0.11,<0.20", "trl": ">=0.15,<1.0"}),
    ("4.5", {"transformers": ">=4.33,<5.17", "peft": ">=0.11,<0.21", "trl": ">=0.15,<1.0"}),
    ("4.6", {"transformers": ">=4.33,<5.20", "peft": ">=0.11,<0.21", "trl": ">=0.15,<1.0"}),
)
"""`Requires-Dist` of the wheels 4.0.4, 4.1.3, 4.2.3, 4.3.2, 4.5.3 and 4.6.0; accelerate and
DeepSpeed have no bounds."""
_BROUGHT: Final = (
    ("4.0", {"transformers": "4.57.6", "peft": "0.18.1", "trl": "0.27.2", "accelerate": "1.12.0"}),
    ("4.3", {"transformers": "5.6.2", "peft": "0.19.1", "trl": "0.29.1", "accelerate": "1.13.0"}),
    ("4.5", {"transformers": "5.15.1", "peft": "0.20.0", "trl": "0.29.1", "accelerate": "1.14.0"}),
)
"""Releases of about the same date within these ranges, beside which the parser was run."""


_ENGINE: Final = (("4.0", "0.23.0"), ("4.3", "0.28.0"), ("4.5", "0.31.0"))
"""The newest vLLM that pip can install beside those: ms-swift requires 0.5.1 or later
(README.md)."""


_OF_MODELS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), ("qwen_vl_utils>=0.0.6", "decord")),
    **dict.fromkeys(
        ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "ovis_ocr2"),
        ("qwen_vl_utils>=0.0.14", "decord"),
    ),
    **dict.fromkeys(("minicpmv2_6", "minicpmv4", "minicpmv4_5"), ("timm", "decord")),
    **dict.fromkeys(("cogagent_chat", "minicpmv", "minicpmv2_5"), ("timm",)),
    **dict.fromkeys(("ovis2", "ovis2_5"), ("moviepy<2",)),
    **dict.fromkeys(("llava_onevision1_5", "llava_onevision2", "monkeyocrv2"), ("qwen_vl_utils",)),
    **dict.fromkeys(("deepseek_ocr", "deepseek_ocr2", "unlimited_ocr"), ("easydict",)),
    **dict.fromkeys(("molmo2", "xcomposer2_5"), ("decord",)),
    **dict.fromkeys(("llava_next_video_hf", "llama3_llava_next"), ("av",)),
    "kimi_k3": ("tiktoken",),
    "keye_vl": ("keye_vl_utils",),
    "keye_vl_1_5": ("keye_vl_utils>=1.5.2",),
}
"""Packages that the loader of a model type imports: ms-swift 4.6.0 model/models/*.py, `requires` of
each `ModelMeta`. It warns if one is missing, and most loaders then fail with an ImportError."""


def needed_packages(kind: str) -> tuple[str, ...]:
    """The packages that a model type needs and ms-swift does not install."""
    return _OF_MODELS.get(kind, ())


def companions(version: Version) -> Mapping[str, str]:
    """The packages beside a release of ms-swift in an environment, with their releases."""
    return {**installed_releases(version), "vllm": row_at(version, _ENGINE)}


def ranges(version: Version) -> Mapping[str, Releases]:
    """The ranges that a release of ms-swift accepts, by package."""
    return {name: Releases(text) for name, text in row_at(version, _RANGES).items()}


def installed_releases(version: Version) -> Mapping[str, str]:
    """The releases that are used beside a release of ms-swift, by package."""
    return row_at(version, _BROUGHT)


METHODS: Final[Mapping[str, str]] = {"dpo": "dpo", "grpo": "grpo", "reward": "rm"}
"""The words of `rlhf_type` by objective."""


def by_rlhf(plan: Plan) -> bool:
    """Whether `swift rlhf` trains the plan, not `swift sft`."""
    return plan.objective.kind in METHODS
