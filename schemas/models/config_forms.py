"""What a model's config tells by its form: the dtype of its weights, and the releases that read it.

transformers 5 writes how positions are rotated as `rope_parameters`. Earlier classes read
`rope_theta`, `rope_scaling` and `partial_rotary_factor`, pass over a key that they do not know, and
rotate by their defaults (transformers 4.57.6 models/*/configuration_*.py; 5.0.0
modeling_rope_utils.py `RotaryEmbeddingConfigMixin`).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.schemas.terms import FloatDtype

_DTYPES: Final[Mapping[str, FloatDtype]] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
}
_LATER, _EARLIER = "rope_parameters", ("rope_theta", "rope_scaling")
_READ_SINCE: Final = "5.0"
_PLAIN: Final = frozenset({"rope_theta", "rope_type"})
_USUAL: Final = 10_000.0
_BASES: Final = {
    12_000_000.0: "apertus",
    500_000.0: (
        "bitnet blt csm ernie4_5 ernie4_5_moe evolla flex_olmo llama4_text mllama_text_model"
    ),
    1_000_000.0: (
        "gemma3_text gemma3n_text lfm2 minimax mixtral phimoe qwen2_5_vl qwen2_5_vl_text qwen2_vl "
        "qwen2_vl_text"
    ),
    100_000.0: "falcon_h1 helium kyutai_speech_to_text",
    25_000.0: "fuyu persimmon",
    150_000.0: "gpt_oss",
    10_000_000.0: "longcat_flash",
    160_000.0: "modernbert modernbert-decoder",
    5_000_000.0: "qwen3_vl_text qwen3_vl_moe_text",
    2_000_000.0: "smollm3",
}
"""The base of the angles by default, of the families that have another than `_USUAL`: the classes
of transformers 4.57.6, made without arguments."""
_BASE: Final = {name: base for base, names in _BASES.items() for name in names.split()}


def stored_in(config: Mapping[str, Any]) -> FloatDtype | None:
    """The dtype of the weights, which transformers 5 writes under another name."""
    return _DTYPES.get(str(config.get("dtype", config.get("torch_dtype"))))


def read_since(config: Mapping[str, Any]) -> str | None:
    """The first release whose model rotates positions as the config says; None: every release."""
    return _READ_SINCE if any(map(_is_passed_over, _parts(config))) else None


def _parts(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The config, and those of its parts."""
    yield config
    for name, part in config.items():
        if isinstance(part, Mapping) and name.endswith("_config"):
            yield from _parts(part)


def _is_passed_over(config: Mapping[str, Any]) -> bool:
    """Whether an earlier class rotates otherwise than one that reads `rope_parameters`."""
    said = config.get(_LATER)
    if not isinstance(said, Mapping) or any(config.get(each) for each in _EARLIER):
        return False
    kinds = [each for each in said.values() if isinstance(each, Mapping)]
    if any(map(_is_scaled, kinds or [said])):
        return True
    base = _BASE.get(str(config.get("model_type")), _USUAL)
    return not kinds and said.get("rope_theta", base) != base


def _is_scaled(said: Mapping[str, Any]) -> bool:
    """Whether a rotation is more than a base."""
    return said.get("rope_type", "default") != "default" or bool(said.keys() - _PLAIN)
