"""Flags of diffusers' example scripts that exclude each other, and their models."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.checks.scripts.diffusers_flags import is_whole_command
from tunec.compiler.lints.conditions import Need, Pair, refused_alone, refused_pair, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.diffusers_examples import commands, scripts
from tunec.compiler.lints.rule import Finding, rule

_PAIRS: Final = (
    Pair("hub_token", "report_to=wandb", "the token would be written into the tracked config"),
    Pair("train_text_encoder", "pre_compute_text_embeddings", "embeddings of frozen weights"),
    Pair("train_text_encoder", "train_text_encoder_ti", "specify only one"),
    Pair("snr_gamma", "do_edm_style_training", "Min-SNR is for other noise schedules"),
    Pair("do_fp8_training", "bnb_quantization_config_path", "cannot both be passed"),
)
_SOURCES: Final = (
    ("dataset_name", "instance_data_dir"),
    ("dataset_name", "train_data_dir"),
    ("dataset_name", "jsonl_for_train"),
)
"""Of two ways to name the data a script takes one; which pair it has is told by its flags."""
_NEEDS: Final = (
    Need("with_prior_preservation", ("class_data_dir",), "where the class images are kept"),
    Need("with_prior_preservation", ("class_prompt",), "prompt for class images"),
    Need("aspect_ratio_buckets", ("use_aspect_ratio_buckets",)),
)
_CONTROLNETS: Final = (
    Need("validation_prompt", ("validation_image",)),
    Need("validation_image", ("validation_prompt",)),
)
_ONE_SOURCE: Final = (
    *("train_dreambooth", "train_control_", "train_controlnet_flux", "train_controlnet_sd3"),
)
_EIGHT: Final = 8
"""Pixels of a side of the VAE's cells."""


@rule(
    "example-flags-refused-together",
    "error",
    "parse",
    consumers=("diffusers",),
    reads=("diffusers:*",),
)
def example_flags_refused_together(run: LintContext) -> Iterator[Finding]:
    """Flags that an example script of diffusers refuses together, or the one without the other."""
    for document, script in commands(run):
        for pair in _PAIRS:
            yield from refused_pair(run, document, pair)
        for need in _NEEDS:
            yield from refused_alone(run, document, need)
        yield from _data(document, script)
        if script.startswith("train_controlnet"):
            for need in _CONTROLNETS:
                yield from refused_alone(run, document, need)
            yield from _sides(document)
            yield from _pictures(document)
        yield from _two_models(run, document)
        yield from _share(document)
        yield from _both_trained(run, document, script)


def _data(document: Document, script: str) -> Iterator[Finding]:
    flags = scripts().get(script, {}).get("flags", ())
    pair = next((each for each in _SOURCES if set(each) <= {*flags}), None)
    if pair is None:
        return
    first, second = (document.get(flag) for flag in pair)
    is_open = document.unknown & {*pair}
    if first and second and script.startswith(_ONE_SOURCE):
        yield Finding(
            f"{pair[0]} cannot stand beside {pair[1]}",
            (first.label("refused"), second.label("", primary=False)),
            ("specify only one of them",),
            "remove one of the two",
        )
    if not first and not second and not is_open and (at := _any(document)) is not None:
        yield Finding(
            f"neither {pair[0]} nor {pair[1]} is given",
            (at.key_label("among these flags"),),
            ("the script ends where it is told of no data",),
            f"write --{pair[1]}",
            # a part of a command is shown more often than all of it
            severity="warning" if is_whole_command(document) else "note",
        )


def _any(document: Document) -> Place | None:
    return next(iter(document.found.values()), None)


def _sides(document: Document) -> Iterator[Finding]:
    at = document.get("resolution")
    if at is not None and isinstance(at.value, int) and at.value % _EIGHT:
        yield Finding(
            f"resolution {at.value} cannot be divided by {_EIGHT}",
            (at.label("refused"),),
            ("the VAE and the control network would see images of different sizes",),
            f"write {at.value // _EIGHT * _EIGHT}",
        )


def _pictures(document: Document) -> Iterator[Finding]:
    """One picture, one prompt, or as many of the one as of the other."""
    images, prompts = document.get("validation_image"), document.get("validation_prompt")
    if images is None or prompts is None or {images.path, prompts.path} & document.unknown:
        return
    count, told = (len(at.value) if isinstance(at.value, list) else 1 for at in (images, prompts))
    if count != told and 1 not in (count, told):
        yield Finding(
            f"{count} validation_image beside {told} validation_prompt",
            (images.label("refused"), prompts.label("", primary=False)),
            ("one of the two is one, or there are as many of each",),
            "give each picture its prompt",
        )


def _two_models(run: LintContext, document: Document) -> Iterator[Finding]:
    """accelerate makes one engine, and a text encoder that is trained too is another model."""
    at = where(document, "train_text_encoder")
    engine = next(
        (each for each in run.each("accelerate", "distributed_type") if each.value == "DEEPSPEED"),
        None,
    ) or next((each for each in run.each("launch", "flags.use_deepspeed") if each.value), None)
    if at is not None and engine is not None:
        yield Finding(
            "train_text_encoder under DeepSpeed, which takes one model",
            (at.label("a second model"), engine.label("", primary=False)),
            ("AssertionError: You can't use same Accelerator() instance with multiple models",),
            "leave the text encoder frozen, or do without DeepSpeed",
            consequence="init",
        )


def _share(document: Document) -> Iterator[Finding]:
    at = document.get("proportion_empty_prompts")
    if at is not None and isinstance(at.value, int | float) and not 0 <= at.value <= 1:
        yield Finding(
            f"proportion_empty_prompts {at.value} is no share",
            (at.label("refused"),),
            ("it must be in the range [0, 1]",),
            "write a share such as 0.2",
        )


def _both_trained(run: LintContext, document: Document, script: str) -> Iterator[Finding]:
    """Accumulation of two models over several processes, in the first script alone."""
    at = where(document, "gradient_accumulation_steps>1")
    beside = where(document, "train_text_encoder")
    world = run.world
    if script != "train_dreambooth" or not at or not beside or world is None or world.value < 2:
        return
    yield Finding(
        "gradients of unet and text encoder cannot be accumulated over several processes",
        (at.label("refused"), beside.label("", primary=False)),
        (f"{world.reason}",),
        "write 1, or train with one process",
    )


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


@rule("example-of-another-model", "error", "step", consumers=("diffusers",), reads=("diffusers:*",))
def example_of_another_model(run: LintContext) -> Iterator[Finding]:
    """An example script of diffusers is given a model of another architecture than it trains."""
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
