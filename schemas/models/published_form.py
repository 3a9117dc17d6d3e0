"""In which form a model's weights are published, by its own config."""

from collections.abc import Mapping
from typing import Any, Final, Literal

Published = Literal["none", "mxfp4", "fp8"]
"""How the weights in a repository are quantised, where a run expands them as it loads them."""

EXPANDED: Final[tuple[Published, ...]] = ("mxfp4", "fp8")
"""Forms that transformers can expand to 16 bits as it loads them: 5.0 to 5.23
quantizers/quantizer_mxfp4.py and quantizer_finegrained_fp8.py, by `dequantize` of their configs."""
TITLES: Final[Mapping[str, str]] = {"mxfp4": "MXFP4", "fp8": "FP8"}


def published_in(config: Mapping[str, Any]) -> Published:
    """The form of the weights that a config.json describes; other forms than these are `none`.

    transformers 5.23 quantizers/auto.py `get_hf_quantizer` looks in the model's own config, then in
    that of its text part.
    """
    for section in (config, config.get("text_config")):
        stored = section.get("quantization_config") if isinstance(section, Mapping) else None
        method = stored.get("quant_method") if isinstance(stored, Mapping) else None
        for each in EXPANDED:
            if method == each:
                return each
    return "none"
