"""SimpleTuner's optimizer and averaged weights."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.diffusion import (
    amount,
    configs,
    deepspeed_of,
    flags_read,
    is_lora,
    is_on,
    said,
    zero_stage,
)
from tunec.compiler.lints.facts.precision import processes
from tunec.compiler.lints.rule import Finding, rule

_WORDS: Final = ("true", "false", "none")
_NUMBER: Final = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@rule("error", "parse", consumers=("simpletuner",), reads=flags_read("optimizer_config"))
def optimizer_config_unreadable(run: LintContext) -> Iterator[Finding]:
    """Settings of the optimizer that SimpleTuner cannot parse."""
    for document in configs(run):
        at = said(document, "optimizer_config")
        if at is None or not isinstance(at.value, str) or "$" in at.value:
            continue
        for part in at.value.split(","):
            name, sign, value = (each.strip() for each in part.partition("="))
            if not sign:
                yield _finding(at, f"`{part}` is no setting: it has no equals sign")
                break
            if "." in value and _NUMBER.fullmatch(value) is None:
                yield _finding(at, f"`{value}` is no number of {name}")
                break
            if _is_left_as_text(value):
                yield _as_text(at, name, value)


def _is_left_as_text(value: str) -> bool:
    """A number without a point or `e-`, which stays a text."""
    is_told = "." in value or value.isdigit() or "e-" in value or value.lower() in _WORDS
    return not is_told and _NUMBER.fullmatch(value) is not None


def _finding(at: Place, what: str) -> Finding:
    return Finding(
        f"optimizer_config cannot be parsed: {what}",
        (at.label("refused"),),
        (
            "it is split at each comma, and each part at its equals sign",
            "betas have flags of their own, optimizer_beta1 and optimizer_beta2",
        ),
        "write optimizer_config: weight_decay=0.01,eps=1e-8",
    )


def _as_text(at: Place, name: str, value: str) -> Finding:
    return Finding(
        f"{name} of optimizer_config is the text {value!r}, and no number",
        (at.label("a text"),),
        ("a number is recognised by its point or by `e-`, and a whole one by its digits",),
        f"write {name}={float(value)!r}",
        consequence="init",
    )


_OWN: Final = "deepspeed_config.optimizer.type"
_TAKEN: Final = (
    *("adagrad", "adam", "adamw", "lamb", "lion", "muon", "muadam", "muadamw", "musgd"),
    *("onebitadam", "onebitlamb", "zerooneadam"),
)
_KEPT: Final = ("adamw", "adam", "lion")


@rule("warning", "silent", consumers=("simpletuner",), reads=flags_read("deepspeed_config"))
def optimizer_replaced_under_deepspeed(run: LintContext) -> Iterator[Finding]:
    """SimpleTuner replaces DeepSpeed's optimizer by another."""
    for document in configs(run):
        engine, own = said(document, "deepspeed_config"), document.get(_OWN)
        at = own or said(document, "optimizer")
        if at is None or engine is None or not engine.value or is_lora(document):
            continue
        if (str(at.value).lower() in _TAKEN) if own is not None else _is_kept(at):
            continue
        yield Finding(
            f"{at.value} is replaced by AdamW under DeepSpeed",
            (at.label("not used"), engine.label("turns DeepSpeed on", primary=False)),
            ("SimpleTuner writes an optimizer into DeepSpeed's configuration, AdamW for most",),
            "choose an AdamW, or train without DeepSpeed",
        )


def _is_kept(at: Place) -> bool:
    name = str(at.value).lower()
    return any(word in name for word in _KEPT) and "8bit" not in name and "free" not in name


@rule(
    "error",
    "parse",
    consumers=("simpletuner",),
    reads=flags_read("optimizer_beta1", "optimizer_beta2"),
)
def one_beta_alone(run: LintContext) -> Iterator[Finding]:
    """One of the optimizer's two betas is given without the other."""
    for document in configs(run):
        found = [said(document, f"optimizer_beta{at}") for at in (1, 2)]
        present = [each for each in found if each is not None]
        if len(present) == 1:
            other = 2 if found[0] is not None else 1
            yield Finding(
                f"optimizer_beta{3 - other} is written without optimizer_beta{other}",
                (present[0].label("refused alone"),),
                (),
                f"write optimizer_beta{other} too",
            )


@rule(
    "error",
    "init",
    consumers=("simpletuner>=4.10",),
    reads=flags_read("ema_cpu_only", "init_lora_ema"),
)
def averaged_weights_not_possible(run: LintContext) -> Iterator[Finding]:
    """Averaged weights (EMA) are requested in a way that SimpleTuner refuses."""
    for document in configs(run):
        yield from _on_cpu(document)
        yield from _without_source(document)


def _on_cpu(document: Document) -> Iterator[Finding]:
    average, cpu, shards = (said(document, k) for k in ("use_ema", "ema_cpu_only", "fsdp_enable"))
    version = said(document, "fsdp_version")
    if cpu is None or shards is None or not all(is_on(each) for each in (average, cpu, shards)):
        return
    if version is not None and amount(version) != 2:
        return
    yield Finding(
        "averaged weights of FSDP2 cannot be kept on the CPU: ema_cpu_only",
        (cpu.label("refused"), (version or shards).label("", primary=False)),
        ("they are sharded like the parameters, and stay on the devices",),
        "remove ema_cpu_only, and write ema_device: accelerator",
    )


def _without_source(document: Document) -> Iterator[Finding]:
    start = said(document, "init_lora_ema")
    if start is None:
        return
    for flag, is_there in (
        ("init_lora", said(document, "init_lora") is not None),
        ("use_ema", is_on(said(document, "use_ema"))),
    ):
        if not is_there:
            yield _lone(start, flag)
            return


def _lone(start: Place, flag: str) -> Finding:
    return Finding(
        f"SimpleTuner refuses init_lora_ema without {flag}",
        (start.label("refused alone"),),
        ("it is the average that belongs to the adapter of init_lora",),
        f"write {flag} too, or remove init_lora_ema",
    )


@rule("error", "init", consumers=("simpletuner",), reads=flags_read("use_ema"))
def averages_validated_under_deepspeed(run: LintContext) -> Iterator[Finding]:
    """Averaged weights are to be validated in a run with DeepSpeed."""
    for document in configs(run):
        average, how = said(document, "use_ema"), said(document, "ema_validation")
        at = deepspeed_of(run, document)
        if average is None or at is None or not is_on(average):
            continue
        stage = zero_stage(run, at)
        if stage == 3:
            continue  # where it validates nothing
        if is_on(said(document, "validation_disable")) or (how is not None and how.value == "none"):
            continue
        yield Finding(
            "averaged weights are to be validated, and DeepSpeed runs the model",
            ((how or average).label("refused"), at.label("DeepSpeed", primary=False)),
            (
                (
                    "ema_validation is comparison by default, and it fails with: EMA "
                    "validation is not supported via DeepSpeed"
                ),
            ),
            "write ema_validation: none",
            severity="warning" if stage is None else None,
        )


@rule("error", "step", consumers=("simpletuner",), reads=("simpletuner:optimizer",))
def optimizer_of_bf16_only(run: LintContext) -> Iterator[Finding]:
    """SimpleTuner's adamw_bf16 for weights that are not bf16."""
    for document in run.of("simpletuner"):
        optimizer = document.get("optimizer")
        if optimizer is None or optimizer.value != "adamw_bf16":
            continue
        if document.value("base_model_precision", "no_change") != "no_change":
            yield from _quantised(document, optimizer)
            continue
        found = list(_whole(document, optimizer))
        yield from found or _sharded(run, document, optimizer)


def _whole(document: Document, optimizer: Place) -> Iterator[Finding]:
    mixed = document.get("mixed_precision")
    if mixed is None or mixed.value not in ("fp16", "no", False):
        return
    yield Finding(
        f"adamw_bf16 over weights that are not bf16: mixed_precision is {_word(mixed)}",
        (mixed.label("not bf16"), optimizer.label("takes bf16 only", primary=False)),
        ("its first step fails with `only bfloat 16 is supported`",),
        "use mixed_precision bf16, or optimi-adamw",
    )


def _sharded(run: LintContext, document: Document, optimizer: Place) -> Iterator[Finding]:
    """What FSDP trains is fp32: accelerate 1.13 alone leaves it as it is."""
    shards, world = said(document, "fsdp_enable"), processes(run)
    if shards is None or not is_on(shards) or world == 1 or run.runs("accelerate>=1.13,<1.14"):
        return
    yield Finding(
        "adamw_bf16 over weights that are not bf16: FSDP trains fp32 shards",
        (shards.label("what is trained becomes fp32"), *also(optimizer)),
        ("its first step fails with `only bfloat 16 is supported`",),
        "use torch-adamw",
        severity="warning" if world is None else None,
    )


def _word(place: Place) -> str:
    return place.value if isinstance(place.value, str) else "no"


def _quantised(document: Document, optimizer: Place) -> Iterator[Finding]:
    base = document.get("base_model_default_dtype")
    if base is None or base.value != "fp32":
        return
    yield Finding(
        "adamw_bf16 over a quantised base in fp32 becomes optimi-adamw",
        (optimizer.label("replaced"), base.label("fp32", primary=False)),
        ("SimpleTuner logs an error and continues with the other optimizer",),
        "use base_model_default_dtype bf16, or say optimi-adamw",
        consequence="silent",
    )


@rule("warning", "silent", consumers=("simpletuner",), reads=("simpletuner:gradient_precision",))
def gradient_precision_ignored(run: LintContext) -> Iterator[Finding]:
    """SimpleTuner's gradient_precision, which no optimizer reads."""
    for place in run.each("simpletuner", "gradient_precision"):
        if place.value != "fp32":
            continue
        yield Finding(
            "gradient_precision fp32 does nothing",
            (place.label("reset to unmodified"),),
            ("it holds only for optimizers that declare it, and none does",),
            "remove it",
            Fix((place.removed(),), "safe") if place.document.format == "json" else None,
        )
