"""An example script of diffusers is given a model of another architecture than it trains."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.diffusion.examples import commands, scripts
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_MODELS: Final = (
    ("Stable Diffusion XL", re.compile(r"(?i)stable-diffusion-xl|(?:^|[/_-])sdxl")),
    ("Stable Diffusion 3", re.compile(r"(?i)stable-diffusion-3|(?:^|[/_-])sd3")),
    ("FLUX.2", re.compile(r"(?i)flux[.-]?2")),
    ("FLUX.1", re.compile(r"(?i)flux[.-]?1")),
    (
        "Stable Diffusion 1 or 2",
        re.compile(r"(?i)stable-diffusion-(v1|v2|2|1)|(?:^|[/_-])sd-?(15|1[.-]5|21)\b"),
    ),
)
"""By the names of the repositories that the makers publish."""
_SCRIPTS: Final = (
    ("Stable Diffusion XL", re.compile(r"_sdxl(_|$)")),
    ("Stable Diffusion 3", re.compile(r"_sd3$")),
    ("FLUX.2", re.compile(r"_flux2(_|$)")),
    ("FLUX.1", re.compile(r"_flux(_|$)")),
    (
        "Stable Diffusion 1 or 2",
        re.compile(
            r"\A(train_dreambooth|train_dreambooth_lora|train_dreambooth_lora_sd15_advanced|"
            r"train_text_to_image|train_text_to_image_lora|train_controlnet|train_instruct_pix2pix|"
            r"train_custom_diffusion|textual_inversion)\Z"
        ),
    ),
)
_WHY: Final = (
    "what the denoiser is told beside the text differs: the script fails where it loads the parts, "
    "or at the first step"
)
_PATHS: Final = ("pretrained_model_name_or_path", "pretrained_teacher_model")


def _check(run: Run) -> Iterator[Finding]:
    for document, script in commands(run):
        trains = _first(_SCRIPTS, script) if script in scripts() else None
        for key in _PATHS:
            at = document.get(key)
            given = _first(_MODELS, at.value) if at and isinstance(at.value, str) else None
            if at is None or given is None or trains is None or given == trains:
                continue
            yield Finding(
                f"{script}.py trains {trains}, and {at.value} is {given}",
                (at.label("another architecture"),),
                (_WHY,),
                f"use the script of {given}: {', '.join(_scripts_of(given)[:2])}",
            )


def _first(table: tuple[tuple[str, re.Pattern[str]], ...], text: str) -> str | None:
    return next((name for name, pattern in table if pattern.search(text)), None)


def _scripts_of(model: str) -> list[str]:
    return [f"{name}.py" for name in sorted(scripts()) if _first(_SCRIPTS, name) == model]


RULE = Rule(
    name="example-of-another-model",
    severity="error",
    consequence="step",
    consumers=("diffusers",),
    sources=(
        (
            "diffusers 0.27.2 to 0.42.1 models/unets/unet_2d_condition.py "
            "`get_aug_embed`: addition_embed_type text_time needs text_embeds in added_cond_kwargs"
        ),
        "huggingface/diffusers#4324, #4507, #4405",
    ),
    check=_check,
)
