"""A yes or no that is text, and so always yes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import Fault, faults, kinds_of

_WORDS: Final = {"true": True, "false": False}
WORDS: Final = {
    **_WORDS,
    **dict.fromkeys(("yes", "y", "on"), True),
    **dict.fromkeys(("no", "n", "off"), False),
}
"""What people mean by a text in the arguments of a trainer, where none is made a truth value."""
_PLAIN: Final = (
    *("activation_checkpointing", "optimizer", "scheduler", "checkpoint", "pipeline", "autotuning"),
    *("flops_profiler", "datastates", "nebula"),
)
"""Sections of ds_config.json that are plain mappings to DeepSpeed; its other blocks read "true" and
"false" as what they say (pydantic)."""
_ADDED: Final = ("wall_clock_breakdown", "flops_profiler.enabled")
"""deepspeed 0.14.5 to 0.19.8 runtime/config.py: `get_wall_clock_breakdown(param_dict) |
self.flops_profiler_config.enabled`, a TypeError for a text."""


_SWITCHES: Final = frozenset(
    {
        *("crop", "disabled", "disable", "default", "prepend_instance_prompt"),
        *("only_instance_prompt", "is_regularisation_data", "is_regularization_data"),
        *("vae_cache_clear_each_epoch", "vae_cache_ondemand", "vae_cache_disable"),
        *("preserve_data_backend_cache", "scan_for_errors", "hash_filenames"),
    }
)
"""simpletuner 3.1.6 and 4.10.1 helpers/data_backend/config/image.py `from_dict`, factory.py: read
as `backend_dict.get("crop", False)` and asked `if crop`."""


_OPTIONS: Final = tuple(
    f"{holder}_checkpointing_kwargs.{name}"
    for holder in ("gradient", "activation")
    for name in ("use_reentrant", "preserve_rng_state")
)
"""Options that torch 2.13.0 utils/checkpoint.py `checkpoint` asks as they are."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("simpletuner-data"):
        for path, at in document.found.items():
            meant = _WORDS.get(at.value.strip().lower()) if isinstance(at.value, str) else None
            if meant is not None and path.rpartition(".")[2] in _SWITCHES:
                yield _as_text(path, at, meant=meant)
    for document in run.of("deepspeed", "hf", *TRL, "llamafactory", "peft"):
        if document.format == "shell" or document.is_view:
            continue
        yield from _of_options(document)
        for fault in faults(run, document):
            value = fault.place.value
            if fault.what != "type" or not isinstance(value, str):
                continue
            words = _WORDS if document.kind == "deepspeed" else WORDS
            meant = words.get(value.strip().lower())
            if meant is None or "boolean" not in kinds_of(fault.schema):
                continue
            if document.kind == "deepspeed" and _is_read(fault):
                continue
            yield _finding(fault, meant=meant)


def _of_options(document: Document) -> Iterator[Finding]:
    for path in _OPTIONS if document.kind in ("hf", *TRL) else ():
        at = document.get(path)
        meant = _WORDS.get(at.word.strip().lower()) if at is not None and at.word else None
        if at is not None and meant is not None:
            yield _as_text(path, at, meant=meant)


def _is_read(fault: Fault) -> bool:
    holder, dot, _ = fault.path.partition(".")
    return bool(dot) and holder not in _PLAIN


def _finding(fault: Fault, *, meant: bool) -> Finding:
    told = _as_text(fault.path, fault.place, meant=meant)
    return replace(told, severity=None, consequence="init") if fault.path in _ADDED else told


def _as_text(path: str, at: Place, *, meant: bool) -> Finding:
    return Finding(
        f"`{path}` is the text {at.value!r}" + ("" if meant else ", and that counts as true"),
        (at.label("text"),),
        ("nothing makes a truth value of it, and any text but an empty one is true",),
        f"write {str(meant).lower()} without quotes",
        Fix((at.replaced(meant),), "safe"),
        severity="warning" if meant else None,
    )


RULE = Rule(
    name="boolean-as-text",
    severity="error",
    consequence="silent",
    consumers=("transformers", "deepspeed", "peft"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 hf_argparser.py `HfArgumentParser.parse_dict`: values "
            "are taken as they are; 5.23.0 run: TrainingArguments(bf16='false').bf16 is 'false'"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `get_zero_allow_untested_optimizer` and "
            "others: get_scalar_param, without a conversion"
        ),
        "peft 0.21.2, run: LoraConfig(use_rslora='false') scales by the root of the rank",
    ),
    check=_check,
)
