"""In which form a model's weights are published, and where else the same weights are."""

import re
from collections.abc import Iterator, Mapping
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


_REPACKED: Final[Mapping[str, str]] = {
    r"Wan-AI/Wan2\..+": r"\g<0>-Diffusers",
    r"stabilityai/stable-diffusion-3-medium": r"\g<0>-diffusers",
    r"Kwai-Kolors/Kolors": r"\g<0>-diffusers",
    r"Efficient-Large-Model/Sana.+": r"\g<0>_diffusers",
    r"meta-llama/(?:Llama-2|CodeLlama)-.+": r"\g<0>-hf",
    r"(meta-llama/Llama-4-.+)-Original": r"\1",
    r"state-spaces/mamba-.+": r"\g<0>-hf",
    r"allenai/OLMo-.+": r"\g<0>-hf",
    r"OpenGVLab/InternVL3.+": r"\g<0>-HF",
    r"nvidia/Llama-3\.1-Nemotron-70B-Instruct": r"\g<0>-HF",
    r"(baidu/ERNIE-4\.5-.+)-Paddle": r"\1-PT",
    r"liuhaotian/llava-v1\.5-(.+)": r"llava-hf/llava-1.5-\1-hf",
    r"liuhaotian/(llava-v1\.6-.+)": r"llava-hf/\1-hf",
    r"lmms-lab/(ll.+)": r"llava-hf/\1-hf",
    "stepfun-ai/GOT-OCR2_0": "stepfun-ai/GOT-OCR-2.0-hf",
    r"mistralai/Pixtral-12B-2409": "mistral-community/pixtral-12b",
}
"""Names, and those of the same weights for diffusers or transformers.

huggingface/diffusers 58eb52c080, `scripts/convert_{wan,sana}_to_diffusers.py` and the docs of
Kolors and Stable Diffusion 3; meta-llama/llama issues 394 and 1334; huggingface/transformers
01080c6294, `convert_*.py` of llama4, mamba, internvl, llava, llava_next, llava_onevision,
got_ocr2 and pixtral; `hf_olmo` in llmfit 1.1.17, embedded hf_models.json; the model cards of
ERNIE 4.5 and of Llama 3.1 Nemotron.
"""


def in_loaded_form(name: str) -> Iterator[str]:
    """The names that the weights of a repository in its makers' own form may have elsewhere."""
    for written, meant in _REPACKED.items():
        if found := re.fullmatch(written, name, re.IGNORECASE):
            yield found.expand(meant)
