"""SimpleTuner's precision, checkpoints and required flags."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.diffusion import (
    MORE,
    amount,
    configs,
    deepspeed_of,
    extra,
    family,
    flags_read,
    is_env_file,
    is_lora,
    is_on,
    said,
    variables_of,
    word,
    zero_stage,
)
from tunec.compiler.lints.facts.precision import on_deepspeed, processes, sharded_by_fsdp
from tunec.compiler.lints.rule import Finding, rule

_FAMILIES: Final = frozenset({"flux", "sana", "sdxl", "sd3", "chroma"})
_NOT_LATER: Final = frozenset({"sdxl", "sd1x", "kolors", "omnigen", "deepfloyd"})
"""Families that the list of 4.10.1 leaves out."""
_STRIDE: Final = "gradient_checkpointing_segment_stride"
_STRIDES: Final = "simpletuner>=4.8"


@rule(
    "error",
    "init",
    consumers=("simpletuner",),
    reads=flags_read(_STRIDE, "gradient_checkpointing_interval"),
)
def checkpointing_interval_unusable(run: LintContext) -> Iterator[Finding]:
    """The interval of recomputed blocks is zero or not supported, or the stride is shorter."""
    for document in configs(run):
        if run.runs(_STRIDES) is not False:
            yield from _strides(document)
        at = said(document, "gradient_checkpointing_interval")
        every = amount(at)
        if at is None or every is None:
            continue
        if family(document) not in _FAMILIES and run.runs("simpletuner<3.2") is not False:
            yield _ignored(at, f"{family(document) or 'this family'} has no such interval")
        elif family(document) in _NOT_LATER and run.runs("simpletuner>=4.0") and every > 1:
            yield _ignored(at, f"{family(document)} has no such interval any more")
        elif every == 0:
            yield Finding(
                "SimpleTuner refuses a gradient_checkpointing_interval of 0",
                (at.label("refused"),),
                ("it checkpoints every so many blocks, and 0 of them is no interval",),
                "write 1 or more, or remove it",
            )
        elif not is_on(said(document, "gradient_checkpointing")) and _says(document):
            yield _ignored(at, "gradient_checkpointing is off")


def _strides(document: Document) -> Iterator[Finding]:
    """A stride is at least as long as a segment of recomputed blocks."""
    at, interval = said(document, _STRIDE), said(document, "gradient_checkpointing_interval")
    stride, every = amount(at), amount(interval)
    if at is None or stride is None or family(document) in _NOT_LATER:
        return
    if stride <= 0:
        yield Finding(f"{_STRIDE} is {at.value}", (at.label("refused"),), (), "remove it")
    elif every is None or every <= 1:
        yield Finding(
            f"{_STRIDE} does nothing without gradient_checkpointing_interval above 1",
            (at.label("not used"), *also(interval)),
            (),
            "write gradient_checkpointing_interval: 2, or remove it",
            severity="warning",
            consequence="silent",
        )
    elif stride < every:
        yield Finding(
            f"{_STRIDE} {at.value} is below gradient_checkpointing_interval {every:g}",
            (at.label("refused"), *also(interval)),
            ("segments of that length would overlap",),
            f"write {every:g} or more",
        )


def _says(document: Document) -> bool:
    return said(document, "gradient_checkpointing") is not None


def _ignored(at: Place, why: str) -> Finding:
    return Finding(
        f"gradient_checkpointing_interval does nothing: {why}",
        (at.label("not used"),),
        (),
        "remove it",
        severity="warning",
        consequence="silent",
    )


@rule("error", "step", consumers=("simpletuner",), reads=flags_read("mixed_precision"))
def fp16_in_simpletuner(run: LintContext) -> Iterator[Finding]:
    """SimpleTuner is to train fp16 parameters with a gradient scaler."""
    if on_deepspeed(run) or sharded_by_fsdp(run) is not None:
        return  # each scales losses itself, and unscales fp16 gradients
    for document in configs(run):
        at = said(document, "mixed_precision")
        if at is None or word(document, "mixed_precision") != "fp16":
            continue
        if word(document, "optimizer") in ("adamw_bf16", "adam_bfloat16"):
            continue  # fails for a reason of its own first
        yield Finding(
            "mixed_precision fp16 trains fp16 parameters, whose gradients are not unscaled",
            (at.label("Attempting to unscale FP16 gradients"),),
            ("the weights are cast to fp16, and torch's GradScaler wants fp32 gradients",),
            "write mixed_precision: bf16, or no on a device without bf16",
            certain=not is_lora(document),
        )


@rule("error", "parse", consumers=("simpletuner",), reads=flags_read("model_type"))
def lora_with_deepspeed(run: LintContext) -> Iterator[Finding]:
    """SimpleTuner is to train LoRA with DeepSpeed."""
    for document in configs(run):
        kind = said(document, "model_type")
        if kind is None or not is_lora(document):
            continue
        at = deepspeed_of(run, document)
        if at is None:
            continue
        yield Finding(
            "SimpleTuner does not train LoRA with DeepSpeed",
            (at.label("turns DeepSpeed on"), kind.label("adapters", primary=False)),
            ("it ends with: LoRA can not be trained with DeepSpeed",),
            "remove deepspeed_config, or train the model itself (model_type full)",
        )


_INTERVAL: Final = "checkpoint_step_interval"
_USUAL_INTERVAL: Final = 500
_LONG: Final = 100_000
"""Steps that a run given in epochs is not thought to have."""
_RETURNS_EARLY: Final = "simpletuner>=3.0.7"


@rule("error", "hang", consumers=("simpletuner",), reads=flags_read("model_type", _INTERVAL))
def full_training_hangs_at_checkpoint(run: LintContext) -> Iterator[Finding]:
    """SimpleTuner is to train a model in full on several ranks, and to save on the way."""
    world = processes(run)
    if world is None or world < 2 or run.runs(_RETURNS_EARLY) is False or sharded_by_fsdp(run):
        return
    for document in configs(run):
        kind, at = said(document, "model_type"), said(document, _INTERVAL)
        if kind is None or kind.value != "full" or is_on(said(document, "fsdp_enable")):
            continue
        every = (amount(at) or 0) if at is not None else _USUAL_INTERVAL
        steps = amount(said(document, "max_train_steps"))
        if not every or every > (steps or _LONG):
            continue
        place = at or kind
        yield Finding(
            f"full training in {world} processes hangs after the checkpoint of step {every:g}",
            (place.label("saves here"), *(() if at is None else also(kind))),
            (
                (
                    "all ranks but the first return from the hook that saves the model; the first "
                    "waits in it for the others, and the ranks are one collective operation apart"
                ),
                "what is written at the end of the run does not wait",
            ),
            f"write {_INTERVAL} above the run's steps, or fsdp_enable: true, which saves by "
            "another path",
            certain=bool(steps),
        )


@rule("error", "save", consumers=("simpletuner",), reads=flags_read("model_type"))
def full_weights_empty_under_zero_3(run: LintContext) -> Iterator[Finding]:
    """SimpleTuner is to train a model in full under ZeRO 3, which leaves each rank its pieces."""
    for document in configs(run):
        kind, engine = said(document, "model_type"), deepspeed_of(run, document)
        if kind is None or kind.value != "full" or engine is None or zero_stage(run, engine) != 3:
            continue
        yield Finding(
            "what SimpleTuner saves of full training under ZeRO 3 are empty tensors",
            (engine.label("ZeRO 3 is turned on here"), *also(kind)),
            ("the main process saves the module alone, and nobody gathers its parameters for it",),
            "write stage 2, with the optimizer on the host if memory is short, or use FSDP2",
        )


@rule("error", "init", consumers=("simpletuner",), reads=flags_read("attention_mechanism"))
def sageattention_of_nf4(run: LintContext) -> Iterator[Finding]:
    """SageAttention is requested for an nf4 base."""
    for document in configs(run):
        at, base = said(document, "attention_mechanism"), said(document, "base_model_precision")
        if (
            at is None
            or base is None
            or "sageattention" not in word(document, "attention_mechanism")
        ):
            continue
        if "nf4" in word(document, "base_model_precision"):
            yield Finding(
                f"SimpleTuner refuses {at.value} over a base in {base.value}",
                (at.label("refused"), base.label("", primary=False)),
                (),
                "quantise to int8 or fp8, or use another attention",
            )


_REQUIRED: Final[Mapping[str, str]] = {
    "model_family": "flux",
    "model_type": "lora",
    "optimizer": "adamw_bf16",
    "output_dir": "output/models",
    "data_backend_config": "config/multidatabackend.json",
}
"""simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py `_is_required`, with a value."""
_EVER: Final = ("model_family", "optimizer")
"""bghira/SimpleTuner v1.0 to v2.2.1 helpers/configuration/cmd_args.py: required=True."""
_LATE: Final = "simpletuner>=3.0"
_DATA: Final = "data_backend_config"
_WHOLE: Final = 10
"""The fewest keys of a complete file: excerpts in public threads show up to nine, without the path
of the data sets; the files that SimpleTuner ships have 25 and more."""


@rule("error", "parse", consumers=("simpletuner",), reads=("simpletuner:*",))
def required_flag_missing(run: LintContext) -> Iterator[Finding]:
    """A required flag of SimpleTuner is empty, or is the only one left out."""
    needed = _EVER if run.runs(_LATE) is False else tuple(_REQUIRED)
    for document in configs(run):
        empty = [at for flag in needed for at in _empty(document, flag)]
        for at in empty:
            yield _nothing(at)
        absent = [flag for flag in _REQUIRED if not _is_there(document, flag)]
        if absent and run.own.holds("StateTracker") and run.own.lacks(absent[0]):
            continue  # the repository holds a SimpleTuner of its own, which has no such flag
        if not empty and len(absent) == 1 and absent[0] in needed and _is_whole(document):
            yield _left_out(document, absent[0])


def _spelt(document: Document, flag: str) -> Iterator[str]:
    yield from variables_of(flag) if is_env_file(document) else (flag, f"--{flag}")


def _empty(document: Document, flag: str) -> Iterator[Place]:
    """Places where a flag is null or empty, so that the loader drops it."""
    if said(document, flag) is not None or flag in extra(document):
        return
    for name in _spelt(document, flag):
        at = document.get(name)
        if at is not None and (at.value is None or not str(at.value).strip()):
            yield at


def _is_there(document: Document, flag: str) -> bool:
    is_open = {flag, f"--{flag}", MORE, *variables_of(flag)} & document.unknown
    return bool(is_open) or said(document, flag) is not None


def _is_whole(document: Document) -> bool:
    """Whether the file is complete: it names the data sets, and has enough keys."""
    return _is_there(document, _DATA) and len(document.root.fields or ()) >= _WHOLE


def _nothing(at: Place) -> Finding:
    return Finding(
        f"{at.path} is empty, and SimpleTuner requires it",
        (at.label("left out"),),
        ("a key that is null or empty is dropped: the following arguments are required",),
        f"give {at.path} a value",
    )


def _left_out(document: Document, flag: str) -> Finding:
    name = next(_spelt(document, flag), flag)
    sign = "=" if document.format != "json" else ": "
    return Finding(
        f"{document.name} has all that SimpleTuner requires, except {name}",
        (Label("without it", document.start(), flag, True),),
        ("the following arguments are required",),
        f"write {name}{sign}{_REQUIRED[flag]}",
        severity="warning",
    )


@rule("error", "silent", consumers=("simpletuner",), reads=("simpletuner:base_model_precision",))
def fp8_quanto_replaced(run: LintContext) -> Iterator[Finding]:
    """SimpleTuner trains a LoRA on several devices over fp8-quanto, and uses int8-quanto."""
    world = processes(run)
    for document in run.of("simpletuner"):
        place = document.get("base_model_precision")
        if place is None or place.value != "fp8-quanto" or world is None or world < 2:
            continue
        lora = document.value("model_type") == "lora"
        if not lora or document.value("lora_type", "standard") != "standard":
            continue
        yield Finding(
            f"fp8-quanto with a PEFT LoRA in {world} processes becomes int8-quanto",
            (place.label("replaced"),),
            ("SimpleTuner logs an error and continues with int8-quanto",),
            "say int8-quanto, or use lora_type lycoris",
            Fix((place.replaced("int8-quanto"),), "safe"),
        )
