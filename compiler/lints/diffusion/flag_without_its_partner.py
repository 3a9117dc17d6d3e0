"""A flag of SimpleTuner that is refused without another one, or beside it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Severity
from tunec.compiler.lints.diffusion.asked import amount, configs, is_on, said, word
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run


@dataclass(frozen=True, slots=True)
class _Partner:
    """A flag, the word that asks for another flag (any, where it is empty), and that flag."""

    flag: str
    asks: str
    needed: str
    consequence: Consequence
    since: str = ""
    with_flag: str = ""
    """A third flag, where the need is looked at beside that one alone."""
    severity: Severity | None = None
    """Where the other flag is often left out of what is shown of a file."""


_PARTNERS: Final = (
    _Partner("report_to", "custom-tracker", "custom_tracker", "init"),
    _Partner("validation_method", "external-script", "validation_external_script", "parse"),
    _Partner(
        *("disk_low_action", "script", "disk_low_script", "parse", "simpletuner>=4.1"),
        with_flag="disk_low_threshold",
    ),
    _Partner("init_lora_step", "", "init_lora", "init", "simpletuner>=4.8"),
    _Partner("lora_type", "lycoris", "lycoris_config", "parse", severity="warning"),
)
_LATE: Final = "simpletuner>=4.8"
_ALONE: Final = "simpletuner<4.4"


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        for each in _PARTNERS:
            if not each.since or run.runs(each.since) is not False:
                yield from _alone(document, each)
        yield from _tracker(document)
        yield from _split(run, document)
        if run.runs(_LATE) is not False:
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
            f"{each.flag} {at.value} without {each.needed}",
            (at.label("refused alone"),),
            (),
            f"write {each.needed}, or remove {each.flag}",
            consequence=each.consequence,
            severity=each.severity,
        )


def _is_open(document: Document, flag: str) -> bool:
    return bool({flag, f"--{flag}", "TRAINER_EXTRA_ARGS"} & document.unknown)


def _tracker(document: Document) -> Iterator[Finding]:
    """A tracker of one's own is taken where the reports go there."""
    at, told = said(document, "custom_tracker"), said(document, "report_to")
    goes = "custom-tracker" in word(document, "report_to").replace("_", "-")
    if at is not None and not goes and not _is_open(document, "report_to"):
        yield _beside(at, told, "report_to: custom-tracker")


def _beside(at: Place, told: Place | None, wanted: str) -> Finding:
    return Finding(
        f"{at.path} {at.value} without {wanted}",
        (at.label("refused"), *([told.label("", primary=False)] if told is not None else [])),
        (),
        f"write {wanted}, or remove {at.path}",
        consequence="init",
    )


def _split(run: Run, document: Document) -> Iterator[Finding]:
    """A sequence is split over processes among which FSDP 2 shards the model."""
    at, fsdp = said(document, "context_parallel_size"), said(document, "fsdp_enable")
    if at is None or (amount(at) or 0) <= 1 or _is_open(document, "fsdp_enable"):
        return
    if not is_on(fsdp) and run.runs(_ALONE) is not False:
        yield Finding(
            f"context_parallel_size {at.value} without fsdp_enable",
            (at.label("refused alone"), *([fsdp.label("", primary=False)] if fsdp else [])),
            ("Context parallelism requires FSDP2; releases from 4.4 on take it alone",),
            "write fsdp_enable: true and fsdp_version: 2",
            consequence="init",
            certain=run.runs(_ALONE) is True,
        )


def _resumed(document: Document) -> Iterator[Finding]:
    """Either the adapter begins at a step, or a checkpoint says where it was."""
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


RULE = Rule(
    name="flag-without-its-partner",
    severity="error",
    consequence="parse",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/trainer.py: --custom_tracker must be "
            "provided when --report_to=custom-tracker; --custom_tracker was provided but "
            "--report_to is not set; helpers/configuration/cmd_args.py: "
            "--validation_external_script is required; --lora_type=lycoris requires you to add a "
            "JSON configuration file location with --lycoris_config"
        ),
        (
            "simpletuner 4.10.1 helpers/configuration/cmd_args.py: --disk_low_script is required; "
            "helpers/training/trainer.py `_initial_lora_step`: init_lora_step requires init_lora; "
            "cannot be combined with resume_from_checkpoint"
        ),
    ),
    check=_check,
)
