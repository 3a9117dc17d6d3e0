"""Whether the model of a run takes images, by the catalogue or by a name that says so."""

import re
from typing import Final

from tunec.compiler.lints.context import LintContext

_NAMES: Final = re.compile(
    r"(?i)qwen\d?(\.\d)?-?vl|qvq-|llava|paligemma|idefics|smolvlm|internvl|pixtral|molmo|"
    r"minicpm-(v|o|llama3-v)|[-_]vision|deepseek-vl|kimi-vl|glm-4(\.\d)?v|aya-vision|ovis"
)
"""Models that are not in the catalogue: processors of images in transformers 4.57.1 and 5.23.0
models/auto/processing_auto.py, by the names of their repositories."""


def sees(run: LintContext) -> bool:
    """Whether images are among what the model is given; not for a model that nobody knows."""
    if run.model is not None:
        return run.model.architecture.kind == "vision-language"
    named = run.model_name
    return named is not None and _NAMES.search(named) is not None
