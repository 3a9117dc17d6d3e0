"""Flags that SimpleTuner refuses."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import one_of_two
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.diffusion import (
    FLOW,
    amount,
    configs,
    family,
    is_lora,
    is_on,
    said,
    word,
)
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace
from tunec.targets.simpletuner.rules.structured_flags import structured

_LEAST: Final = {
    "fsdp_version": (1, 2),
    "train_batch_size": (1, None),
    "validation_num_video_frames": (1, None),
    "validate_after_step": (0, None),
    "validate_after_epoch": (0, None),
    "metadata_update_interval": (60, None),
    "gradient_accumulation_steps": (1, None),
    "timestep_bias_portion": (0.0, 1.0),
}
_SET_UP: Final = frozenset({"train_batch_size"})
"""Flags that are checked when the data sets are set up; the others when flags are parsed."""
_SHARES: Final = ("caption_dropout_probability", "noise_offset_probability")
_CONTROLLED: Final = (
    *("sd1x", "sd2x", "sdxl", "flux", "pixart_sigma", "auraflow", "sd3", "hidream"),
)
_TOGETHER: Final = (
    ("fsdp_enable", "deepspeed_config", "each shards the model", ""),
    *(
        (schedule, "flow_cubic_schedule_weights", "each is a schedule", ">=4.10")
        for schedule in (
            *("flux_fast_schedule", "flow_use_uniform_schedule", "flow_use_beta_schedule"),
            "flow_custom_timesteps",
        )
    ),
)
_LATE: Final = "simpletuner>=4.10"
_NO_JSON: Final = (".yaml", ".yml", ".toml", ".env")
_WITHOUT_CLIP: Final = (
    *("ace_step", "anima", "auraflow", "deepfloyd", "kolors", "lumina2", "ltxvideo", "ltxvideo2"),
    *("hunyuanvideo", "omnigen", "pixart", "pixart_sigma", "sana", "sd1x", "sd2x", "sd3", "sdxl"),
    "stable_cascade",
)
"""simpletuner 4.10.1 helpers/models/*/model.py without `SUPPORTS_MUON_CLIP = True`."""
_SPLIT: Final = (
    *("chroma", "flux", "flux2", "hunyuanvideo", "kandinsky5-image", "kandinsky5-video"),
    *("kandinsky5_image", "kandinsky5_video", "krea2", "longcat_image", "longcat_video"),
    *("ltxvideo2", "mageflow", "minimaxh3", "moss_image", "sd3", "wan", "z_image"),
)
"""simpletuner 4.10.1 safety_check.py `attention_activation_offload_supported_models`."""
_SIZE: Final = re.compile(r"\d+(x\d+)?")
_TIMESTEPS: Final = 1000
_LOGGERS: Final = (
    *("simpletuner", "tensorboard", "wandb", "swanlab", "comet_ml", "custom-tracker", "none"),
)


@rule("error", "parse", consumers=("simpletuner",), reads=("simpletuner:*",))
def flags_refused(run: LintContext) -> Iterator[Finding]:
    """Flags of SimpleTuner that are refused together, alone, or outside their range."""
    for document in configs(run):
        yield from _ranges(document)
        yield from _shares(document)
        yield from _rank(document)
        yield from _dropout(document)
        yield from _steps(document)
        for one, other, why, since in _TOGETHER:
            at, beside = said(document, one), said(document, other)
            is_there = not since or run.runs(f"simpletuner{since}") is not False
            if at is not None and beside is not None and is_there and _is_set(at, beside):
                yield one_of_two(at, beside, why)
        yield from _of_methods(document)
        yield from _moved_twice(run, document)
        yield from _of_data(document)
        yield from _of_families(run, document)
        yield from _reports(run, document)
        yield from _pictures(document)
        yield from _biased(document)
        yield from _waves(document)
        yield from structured(run, document)


def _pictures(document: Document) -> Iterator[Finding]:
    """Sizes of validation images: a side, or WIDTHxHEIGHT, separated by commas."""
    at = said(document, "validation_resolution")
    if at is None or isinstance(at.value, list) or "$" in str(at.value):
        return
    sizes = [each.strip().lower() for each in str(at.value).split(",")]
    if not all(_SIZE.fullmatch(each) for each in sizes):
        yield Finding(
            f"validation_resolution cannot be {at.value}",
            (at.label("no size"),),
            ("a size is a side, as 1024, or 1280x768; several have commas between them",),
            "write 1024x1024",
            consequence="init",
        )


def _biased(document: Document) -> Iterator[Finding]:
    """The weights of timesteps in noise prediction."""
    how = word(document, "timestep_bias_strategy")
    if how not in ("earlier", "later", "range") or family(document) in FLOW:
        return
    times, last = said(document, "timestep_bias_multiplier"), said(document, "timestep_bias_end")
    if times is not None and (amount(times) or 0) <= 0:
        yield Finding(
            f"timestep_bias_multiplier cannot be {times.value}",
            (times.label("refused at the first step"),),
            ("it is not for turning time steps off",),
            "write timestep_bias_strategy: none, or a number above 0",
            consequence="step",
        )
    if how == "range" and last is not None and (amount(last) or 0) > _TIMESTEPS:
        yield Finding(
            f"timestep_bias_end cannot be {last.value}",
            (last.label("refused at the first step"),),
            (f"there are {_TIMESTEPS} time steps",),
            f"write {_TIMESTEPS}",
            consequence="step",
        )


def _is_set(*places: Place) -> bool:
    return all(is_on(each) or amount(each) or _is_text(each) for each in places)


def _is_text(at: Place) -> bool:
    return str(at.value).strip().lower() not in ("", "none", "false", "0", "no", "off")


def _ranges(document: Document) -> Iterator[Finding]:
    for flag, (least, most) in _LEAST.items():
        at = said(document, flag)
        number = amount(at)
        if at is None or number is None or (least <= number and (most is None or number <= most)):
            continue
        yield Finding(
            f"{flag} cannot be {at.value}",
            (at.label("refused"),),
            (f"at least {least}" if most is None else f"from {least} to {most}",),
            f"write {least}" if number < least else f"write {most}",
            consequence="init" if flag in _SET_UP else None,
        )


def _rank(document: Document) -> Iterator[Finding]:
    at = said(document, "lora_rank")
    number = amount(at)
    is_own = said(document, "lora_type") is None or word(document, "lora_type") == "standard"
    if at is not None and number is not None and number < 1 and is_lora(document) and is_own:
        yield Finding(
            f"lora_rank cannot be {at.value}",
            (at.label("refused by PEFT"),),
            ("r should be a positive integer value",),
            "write 16",
        )


def _dropout(document: Document) -> Iterator[Finding]:
    at = said(document, "lora_dropout")
    share = amount(at)
    if at is not None and share is not None and not 0 <= share <= 1 and is_lora(document):
        yield Finding(
            f"lora_dropout cannot be {at.value}",
            (at.label("no share"),),
            ("dropout probability has to be between 0 and 1",),
            "write 0.1",
            consequence="init",
        )


def _shares(document: Document) -> Iterator[Finding]:
    for flag in _SHARES:
        at = said(document, flag)
        if at is not None and (amount(at) or 0) > 1:
            yield Finding(
                f"{flag} {at.value} is above 1, which is always",
                (at.label("a share of 1"),),
                (),
                f"write {(amount(at) or 0) / 100:g}",
                severity="warning",
                consequence="silent",
            )


def _steps(document: Document) -> Iterator[Finding]:
    """Either steps or epochs decide; epochs are 1 by default."""
    steps, passes = said(document, "max_train_steps"), said(document, "num_train_epochs")
    if steps is None or not (amount(steps) or 0) > 0:
        yield from _endless(steps, passes)
        return
    if document.unknown & {"num_train_epochs", "--num_train_epochs", "NUM_EPOCHS"}:
        return
    if passes is None and document.format in ("json", "toml"):
        yield Finding(
            f"max_train_steps {steps.value} needs num_train_epochs: 0",
            (steps.label("refused alone"),),
            ("num_train_epochs is 1 by default, and SimpleTuner takes one of the two",),
            "write num_train_epochs: 0",
        )
    elif passes is not None and (amount(passes) or 0) > 0:
        yield Finding(
            f"max_train_steps {steps.value} cannot be combined with epochs ({passes.value})",
            (passes.label("refused"), steps.label("", primary=False)),
            ("SimpleTuner takes one of the two",),
            "write 0 for one of them",
        )


def _endless(steps: Place | None, passes: Place | None) -> Iterator[Finding]:
    """Neither steps nor epochs are above 0; by default there is 1 epoch."""
    if passes is not None and amount(passes) == 0:
        yield Finding(
            "neither max_train_steps nor num_train_epochs is above 0",
            (passes.label("refused"), *also(steps)),
            ("it is checked after the data sets were counted",),
            "write a number for one of them",
            consequence="init",
        )


def _waves(document: Document) -> Iterator[Finding]:
    """The period of a sine is set by lr_warmup_steps, 0 by default."""
    kind, length = said(document, "lr_scheduler"), said(document, "lr_warmup_steps")
    if kind is None or word(document, "lr_scheduler") != "sine":
        return
    if said(document, "deepspeed_config") is not None or "lr_warmup_steps" in document.unknown:
        return
    if (amount(length) or 0) <= 0:
        yield Finding(
            "lr_scheduler sine needs lr_warmup_steps, which are half its period",
            (
                (length or kind).label("refused"),
                *([kind.label("", primary=False)] if length else []),
            ),
            ("Sine learning rate expects positive integer T_0",),
            "write lr_warmup_steps, or another lr_scheduler",
            consequence="init",
        )


def _of_data(document: Document) -> Iterator[Finding]:
    """The list of data sets is read by json.load, whatever the file's name."""
    at = said(document, "data_backend_config")
    if at is not None and str(at.value).lower().endswith(_NO_JSON):
        yield Finding(
            f"data_backend_config {at.value} is read as JSON",
            (at.label("not JSON"),),
            ("json.decoder.JSONDecodeError",),
            "write the data sets in a JSON file",
            consequence="init",
        )


def _moved_twice(run: LintContext, document: Document) -> Iterator[Finding]:
    at, beside = said(document, "musubi_blocks_to_swap"), said(document, "ramtorch")
    if at is None or beside is None or run.runs("simpletuner>=4.0") is False:
        return
    if _is_set(at, beside):
        both = one_of_two(at, beside, "both move the blocks to the host")
        yield replace(both, consequence="init")


def _of_families(run: LintContext, document: Document) -> Iterator[Finding]:
    """Methods that the code of a family has to support."""
    name, optimizer = family(document), said(document, "optimizer")
    offload = said(document, "gradient_checkpointing_offload_attention")
    is_muon = word(document, "optimizer") == "muon" and run.runs("simpletuner>=3.3") is not False
    if optimizer is not None and is_muon and name in _WITHOUT_CLIP:
        yield _not_there(optimizer, f"optimizer muon is not there for {name}")
    is_late = run.runs("simpletuner>=4.8") is not False
    if offload is not None and is_on(offload) and name and name not in _SPLIT and is_late:
        yield _not_there(offload, f"{offload.path} is not there for {name}")


def _not_there(at: Place, what: str) -> Finding:
    return Finding(
        what,
        (at.label("refused"),),
        ("the code of the family must support it",),
        "remove it, or take another family",
        consequence="init",
    )


def _of_methods(document: Document) -> Iterator[Finding]:
    control, kind = said(document, "controlnet"), family(document)
    if control is not None and is_on(control) and kind and kind not in _CONTROLLED:
        yield Finding(
            f"controlnet is not there for {kind}",
            (control.label("refused"),),
            (f"it exists only for {', '.join(_CONTROLLED)}",),
            "remove it, or take another family",
            consequence="init",
        )
    quantised = said(document, "quantization_config")
    is_read = quantised is not None and not isinstance(quantised.value, dict)
    if quantised is not None and is_read and _is_text(quantised) and not is_lora(document):
        yield Finding(
            "quantization_config is for LoRA only",
            (quantised.label("refused"),),
            ("the base is quantised, and cannot be trained itself",),
            "remove it, or write model_type: lora",
        )


def _reports(run: LintContext, document: Document) -> Iterator[Finding]:
    """4.10 checks the names of the trackers itself."""
    report = said(document, "report_to")
    if report is None or not isinstance(report.value, str) or run.runs(_LATE) is False:
        return
    words = [each.strip().lower() for each in report.value.split(",")]
    is_empty = bool(report.value.strip()) and not any(words)
    if is_empty or any(each and each not in _LOGGERS for each in words):
        yield Finding(
            f"report_to cannot be {report.value}",
            (report.label("not taken"),),
            (f"taken: {', '.join(_LOGGERS)}",),
            "write tensorboard",
            severity=None if run.runs(_LATE) else "warning",
        )
