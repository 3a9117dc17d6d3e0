"""Flags of SimpleTuner that require or exclude each other."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Severity
from tunec.compiler.lints.conditions import is_checked, notes, one_of_two, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.diffusion import (
    amount,
    configs,
    family,
    flags_read,
    is_on,
    said,
    word,
)
from tunec.compiler.lints.rule import Consequence, Finding, rule

_FLAGS_LATE: Final = "simpletuner>=4.0"
_OWN: Final = ("sdnq", "fp8-native", "transformerengine")
"""simpletuner 4.10.1 helpers/training/quantisation/__init__.py: MANUAL_QUANTIZATION_PRESETS without
PIPELINE_QUANTIZATION_PRESETS."""
_SKIPPED: Final = ("sd3", "wan", "wan_s2v", "zlab_i1", "moss_image")
_ENGINES: Final = ("quanto", "torchao")
_OF_PIPELINES: Final = ("-bnb", "-torchao", "-quanto")
_ENCODERS: Final = tuple(f"text_encoder_{number}_precision" for number in range(1, 5))
_HOOKS: Final = "FSDP v2 CPU parameter offload is not compatible with hooks on each gradient"
_END: Final = 4e-7
"""simpletuner 3.1.6 and 4.10.1: the default of lr_end."""


@rule(
    "error",
    "parse",
    consumers=("simpletuner",),
    reads=flags_read(
        *("fsdp_enable", "validation_adapter_path", "lr_scheduler", "quantize_via"),
        *("quantization_config", "validation_guidance_skip_layers", *_ENCODERS),
    ),
)
def flags_at_odds(run: LintContext) -> Iterator[Finding]:
    """Two flags of SimpleTuner of which it refuses both together, or one without the other."""
    for document in configs(run):
        yield from _pairs(run, document)
        yield from _end(document)
        yield from _pipeline(run, document)
        yield from _encoders(run, document)
        yield from _engines(document)
        yield from _layers(document)
        yield from _configured(run, document)
        yield from _hooked(run, document)


def _pairs(run: LintContext, document: Document) -> Iterator[Finding]:
    path = said(document, "validation_adapter_path")
    adapters = said(document, "validation_adapter_config")
    if path is not None and adapters is not None:
        yield _beside_value(run, path, adapters, "each names the adapters of validation")
    fsdp, base = said(document, "fsdp_enable"), said(document, "base_model_precision")
    if fsdp is None or base is None or not is_checked(run, _FLAGS_LATE):
        return
    is_first = amount(said(document, "fsdp_version")) == 1
    is_quanto = "quanto" in word(document, "base_model_precision")
    if word(document, "fsdp_enable") == "true" and is_quanto and not is_first:
        why = "Quanto's kernels have no rules for sharded tensors, and FSDP is version 2 by default"
        yield _beside_value(run, fsdp, base, why, _FLAGS_LATE)


def _beside_value(run: LintContext, at: Place, beside: Place, why: str, since: str = "") -> Finding:
    return Finding(
        f"{at.path} cannot stand beside {beside.path} {beside.value}",
        (at.label("refused"), beside.label("", primary=False)),
        notes(run, why, since),
        "remove one of the two",
        severity=severity(run, since),
    )


def _end(document: Document) -> Iterator[Finding]:
    """A polynomial schedule falls from the rate to its end, which has to be lower."""
    end, rate = said(document, "lr_end"), said(document, "learning_rate")
    top, low = amount(rate), amount(end) if end is not None else _END
    if word(document, "lr_scheduler") != "polynomial" or rate is None or not top or low is None:
        return
    if low < top:
        return
    told = f"lr_end {end.value}" if end is not None else f"an lr_end of {_END:g}"
    first = end if end is not None else rate
    yield Finding(
        f"a polynomial schedule cannot fall from learning_rate {rate.value} to {told}",
        (
            first.label("refused" if end is not None else "not above the end of the schedule"),
            *([rate.label("", primary=False)] if end is not None else []),
        ),
        () if end is not None else (f"lr_end is {_END:g} by default",),
        f"write lr_end: {top / 10:g}",
        consequence="init",
    )


def _pipeline(run: LintContext, document: Document) -> Iterator[Finding]:
    via, form = said(document, "quantize_via"), said(document, "base_model_precision")
    if via is None or form is None or word(document, "quantize_via") != "pipeline":
        return
    if not any(each in word(document, "base_model_precision") for each in _OWN):
        return
    if run.runs(_FLAGS_LATE) is False:
        return
    yield Finding(
        f"quantize_via pipeline cannot make base_model_precision {form.value}",
        (form.label("refused"), via.label("", primary=False)),
        ("a pipeline of diffusers quantises by bitsandbytes, torchao or quanto",),
        "write quantize_via: accelerator, or base_model_precision: nf4-bnb",
    )


def _encoders(run: LintContext, document: Document) -> Iterator[Finding]:
    """Text encoders are quantized by the engine of the base's pipeline, or not at all."""
    via, form = said(document, "quantize_via"), said(document, "base_model_precision")
    is_pipeline = via is not None and word(document, "quantize_via") == "pipeline"
    is_preset = form is not None and str(form.value).lower().endswith(_OF_PIPELINES)
    beside = via if is_pipeline else form if is_preset else None
    for at in (said(document, flag) for flag in _ENCODERS if run.runs(_FLAGS_LATE) is not False):
        if at is not None and beside is not None and _is_own(at):
            why = "a pipeline of diffusers quantises by bitsandbytes, torchao or quanto"
            yield one_of_two(at, beside, why)


def _is_own(at: Place) -> bool:
    return any(each in str(at.value).lower() for each in _OWN)


def _configured(run: LintContext, document: Document) -> Iterator[Finding]:
    """quantization_config applies to a pipeline, and includes the text encoders."""
    at, form = said(document, "quantization_config"), said(document, "base_model_precision")
    if at is None or isinstance(at.value, dict) or run.runs(_FLAGS_LATE) is False:
        return
    if form is not None and any(each in str(form.value).lower() for each in _OWN):
        why = "a pipeline of diffusers quantises by bitsandbytes, torchao or quanto"
        yield one_of_two(at, form, why)
    for flag in _ENCODERS:
        beside = said(document, flag)
        if beside is not None and beside.value != "no_change":
            yield one_of_two(beside, at, "quantization_config has an entry for each text encoder")


def _hooked(run: LintContext, document: Document) -> Iterator[Finding]:
    """Optimizers that step in the backward pass hook tensors that FSDP 2 moves to the host."""
    offload, fsdp = said(document, "fsdp_cpu_offload"), said(document, "fsdp_enable")
    if not (is_on(offload) and is_on(fsdp)) or offload is None or run.runs(_FLAGS_LATE) is False:
        return
    if amount(said(document, "fsdp_version")) == 1:
        return
    released, moved = (
        said(document, each)
        for each in ("optimizer_release_gradients", "optimizer_cpu_offload_method")
    )
    if is_on(released) and released is not None and "optimi" in word(document, "optimizer"):
        yield one_of_two(released, offload, _HOOKS)
    if moved is not None and str(moved.value).lower() == "torchao":
        yield one_of_two(moved, offload, _HOOKS)


def _engines(document: Document) -> Iterator[Finding]:
    """SimpleTuner quantizes everything by the same one of quanto and torchao."""
    base = said(document, "base_model_precision")
    mine = _engine(base)
    for flag in _ENCODERS:
        at = said(document, flag)
        theirs = _engine(at)
        if at is not None and base is not None and mine and theirs and mine != theirs:
            yield Finding(
                f"{flag} {at.value} cannot stand beside base_model_precision {base.value}",
                (at.label("refused"), base.label("", primary=False)),
                ("quanto and torchao are not loaded together",),
                f"write {at.value}".replace(theirs, mine),
                consequence="init",
            )


def _engine(at: Place | None) -> str | None:
    text = str(at.value).lower() if at is not None else ""
    return next((each for each in _ENGINES if each in text), None)


def _layers(document: Document) -> Iterator[Finding]:
    at, kind = said(document, "validation_guidance_skip_layers"), family(document)
    if at is not None and kind and kind not in _SKIPPED:
        yield Finding(
            f"SimpleTuner's {kind} has no validation_guidance_skip_layers",
            (at.label("refused"),),
            (f"it exists only for {', '.join(_SKIPPED[:2])} and related families",),
            "remove it",
        )


class _Partner(Struct, frozen=True):
    """A flag, the value that requires another flag (any if empty), and that flag."""

    flag: str
    asks: str
    needed: str
    why: str
    consequence: Consequence
    since: str = ""
    with_flag: str = ""
    """A third flag, without which the requirement is not checked."""
    severity: Severity | None = None
    """The severity, if users often leave the other flag out of what they show."""


_PARTNERS: Final = (
    _Partner(
        *("report_to", "custom-tracker", "custom_tracker"),
        *("it names the tracker that reports go to", "init"),
    ),
    _Partner(
        *("validation_method", "external-script", "validation_external_script"),
        *("it names the script that validates", "parse"),
    ),
    _Partner(
        *("disk_low_action", "script", "disk_low_script"),
        *("it names the script that makes room", "parse", "simpletuner>=4.1"),
        with_flag="disk_low_threshold",
    ),
    _Partner(
        *("init_lora_step", "", "init_lora"),
        *("it names the adapter that was trained to this step", "init", "simpletuner>=4.8"),
    ),
    _Partner(
        *("lora_type", "lycoris", "lycoris_config"),
        *("it names the file with LyCORIS's method and numbers", "parse"),
        severity="warning",
    ),
)
_PARTNER_LATE: Final = "simpletuner>=4.8"
_ALONE: Final = "simpletuner<4.4"


@rule(
    "error",
    "parse",
    consumers=("simpletuner",),
    reads=flags_read(*(each.flag for each in _PARTNERS), "custom_tracker", "context_parallel_size"),
)
def flag_without_its_partner(run: LintContext) -> Iterator[Finding]:
    """A flag of SimpleTuner that is refused without another one, or beside it."""
    for document in configs(run):
        for each in _PARTNERS:
            if not each.since or run.runs(each.since) is not False:
                yield from _alone(document, each)
        yield from _tracker(document)
        yield from _split(run, document)
        if run.runs(_PARTNER_LATE) is not False:
            yield from _resumed(document)


def _alone(document: Document, each: _Partner) -> Iterator[Finding]:
    at = said(document, each.flag)
    if at is None or _is_open(document, each.needed) or said(document, each.needed) is not None:
        return
    if each.with_flag and said(document, each.with_flag) is None:
        return
    words = [one.strip() for one in word(document, each.flag).replace("_", "-").split(",")]
    if each.asks in words if each.asks else amount(at):
        yield Finding(
            f"SimpleTuner refuses {each.flag} {at.value} without {each.needed}",
            (at.label("refused alone"),),
            (f"{each.needed} is left out: {each.why}",),
            f"write {each.needed}, or remove {each.flag}",
            consequence=each.consequence,
            severity=each.severity,
        )


def _is_open(document: Document, flag: str) -> bool:
    return bool({flag, f"--{flag}", "TRAINER_EXTRA_ARGS"} & document.unknown)


def _tracker(document: Document) -> Iterator[Finding]:
    """A custom tracker is used if reports go to it."""
    at, told = said(document, "custom_tracker"), said(document, "report_to")
    goes = "custom-tracker" in word(document, "report_to").replace("_", "-")
    if at is not None and not goes and not _is_open(document, "report_to"):
        yield _beside(at, told, "report_to: custom-tracker")


def _beside(at: Place, told: Place | None, wanted: str) -> Finding:
    return Finding(
        f"SimpleTuner refuses {at.path} {at.value} without {wanted}",
        (at.label("refused"), *also(told)),
        ("the tracker would get no reports",),
        f"write {wanted}, or remove {at.path}",
        consequence="init",
    )


def _split(run: LintContext, document: Document) -> Iterator[Finding]:
    """A sequence is split over processes among which FSDP 2 shards the model."""
    at, fsdp = said(document, "context_parallel_size"), said(document, "fsdp_enable")
    if at is None or (amount(at) or 0) <= 1 or _is_open(document, "fsdp_enable"):
        return
    if not is_on(fsdp) and run.runs(_ALONE) is not False:
        yield Finding(
            f"SimpleTuner refuses context_parallel_size {at.value} without fsdp_enable",
            (at.label("refused alone"), *also(fsdp)),
            ("Context parallelism requires FSDP2; releases from 4.4 on take it alone",),
            "write fsdp_enable: true and fsdp_version: 2",
            consequence="init",
            certain=run.runs(_ALONE) is True,
        )


def _resumed(document: Document) -> Iterator[Finding]:
    """Either `init_lora_step` sets the first step, or a checkpoint does."""
    at, other = said(document, "init_lora_step"), said(document, "resume_from_checkpoint")
    if at is not None and other is not None and amount(at) and not _is_off(other):
        yield Finding(
            "init_lora_step cannot stand beside resume_from_checkpoint",
            (at.label("refused"), other.label("", primary=False)),
            ("a checkpoint says itself at which step it was written",),
            "remove one of the two",
            consequence="init",
        )


def _is_off(at: Place) -> bool:
    return not is_on(at) and str(at.value).strip().lower() in ("false", "none", "")
