"""A yes or no that is text, and so always yes."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import Fault, faults, kinds_of

_WORDS: Final = {"true": True, "false": False}
_PLAIN: Final = (
    *("activation_checkpointing", "optimizer", "scheduler", "checkpoint", "pipeline", "autotuning"),
    *("flops_profiler", "datastates", "nebula"),
)
"""Sections of ds_config.json that are plain mappings to DeepSpeed; its other blocks read "true" and
"false" as what they say (pydantic)."""
_ADDED: Final = ("wall_clock_breakdown", "flops_profiler.enabled")
"""deepspeed 0.14.5 to 0.19.8 runtime/config.py: `get_wall_clock_breakdown(param_dict) |
self.flops_profiler_config.enabled`, a TypeError for a text."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed", "hf", *TRL, "llamafactory"):
        if document.format == "shell" or document.is_view:
            continue
        for fault in faults(run, document):
            value = fault.place.value
            if fault.what != "type" or not isinstance(value, str):
                continue
            meant = _WORDS.get(value.strip().lower())
            if meant is None or "boolean" not in kinds_of(fault.schema):
                continue
            if document.kind == "deepspeed" and _is_read(fault):
                continue
            yield _finding(fault, meant=meant)


def _is_read(fault: Fault) -> bool:
    holder, dot, _ = fault.path.partition(".")
    return bool(dot) and holder not in _PLAIN


def _finding(fault: Fault, *, meant: bool) -> Finding:
    return Finding(
        f"`{fault.path}` is the text {fault.place.value!r}"
        + ("" if meant else ", and that counts as true"),
        (fault.place.label("text"),),
        ("nothing makes a truth value of it, and any text but an empty one is true",),
        f"write {str(meant).lower()} without quotes",
        Fix((fault.place.replaced(meant),), "safe"),
        severity="warning" if meant and fault.path not in _ADDED else None,
        consequence="init" if fault.path in _ADDED else None,
    )


RULE = Rule(
    name="boolean-as-text",
    severity="error",
    consequence="silent",
    consumers=("transformers", "deepspeed"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 hf_argparser.py `HfArgumentParser.parse_dict`: "
            "values are "
            "taken as they are; 5.23.0 run: TrainingArguments(bf16='false').bf16 is 'false'"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `get_zero_allow_untested_optimizer` and "
            "others: get_scalar_param, without a conversion"
        ),
    ),
    check=_check,
)
