"""Shrinks a model: the same architecture, small enough for a CPU."""

from collections.abc import Mapping
from typing import Any, Final

Config = Mapping[str, Any]

VOCABULARY: Final = 128
SEQUENCE: Final = 16
"""The number of tokens of a generated sample."""

HEAD: Final = 8
QUANTISED_HEAD: Final = 32
"""The width of a head if the base is quantised: bitsandbytes 0.50.2 functional.py
`_convert_weight_packed_for_cpu` needs layer outputs in multiples of 32."""
_LAYERS: Final = 2
_MOST_HEADS: Final = 16
_LARGEST: Final[Mapping[str, int]] = {
    "vocab_size": VOCABULARY,
    "num_hidden_layers": _LAYERS,
    "max_window_layers": _LAYERS,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "sliding_window": SEQUENCE,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
}
"""The upper limit of each size in a config; sizes that the config lacks are not added."""
_WIDTHS: Final = ("head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")

_BY_LAYER: Final = ("layer_types", "mlp_layer_types")
_DROPPED: Final = ("quantization_config", "torch_dtype", "dtype", "rope_scaling", "rope_parameters")
"""Keys for weight formats, which are not loaded, and for scaling of positions that do not occur."""


class Unrehearsable(Exception):
    """A rehearsal is not possible; the message says what cannot be run and why."""


def shrunk(config: Config, head: int = HEAD) -> dict[str, Any]:
    """A config of the same family with two layers, few heads of width `head`, and few tokens.

    The ratio of query heads to key and value heads is kept, and so is every switch. Raises
    Unrehearsable for a config without the sizes of a decoder.
    """
    heads = config.get("num_attention_heads")
    if not isinstance(heads, int) or "hidden_size" not in config:
        raise Unrehearsable("the model's config has no hidden_size and num_attention_heads")
    kept = {key: value for key, value in config.items() if key not in _DROPPED}
    largest = {**_LARGEST, **dict.fromkeys(_WIDTHS, head)}
    small = {key: _at_most(kept[key], most) for key, most in largest.items() if key in kept}
    tokens = {key: _token(value) for key, value in kept.items() if key.endswith("_token_id")}
    layers = {key: kept[key][:_LAYERS] for key in _BY_LAYER if isinstance(kept.get(key), list)}
    return {**kept, **small, **tokens, **layers, **_heads(config, heads, head)}


def _at_most(value: Any, most: int) -> Any:
    return min(value, most) if isinstance(value, int) else value


def _token(value: Any) -> Any:
    """Map special tokens into the small vocabulary."""
    if isinstance(value, list):
        return [_token(each) for each in value]
    return value % VOCABULARY if isinstance(value, int) else value


def _heads(config: Config, heads: int, width: int) -> dict[str, int]:
    shared = config.get("num_key_value_heads") or heads
    group = heads // shared
    pairs = min(shared, 2) if 2 * group <= _MOST_HEADS else 1
    found = {"num_attention_heads": pairs * group, "hidden_size": pairs * group * width}
    return found | ({"num_key_value_heads": pairs} if "num_key_value_heads" in config else {})
