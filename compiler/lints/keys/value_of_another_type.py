"""A value of a type that its reader does not take."""

from collections.abc import Iterator
from math import isfinite
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, shown
from tunec.compiler.lints.keys.number_as_text import number_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import Fault, faults, kinds_of

_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
    "array": "a list",
    "object": "a mapping",
}

_KINDS: Final = ("hf", "sft", "dpo", "grpo", "llamafactory")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed", *_KINDS, "peft"):
        if document.format == "shell" or document.is_view:
            continue
        for fault in faults(run, document):
            if fault.what == "type" and not _is_spoken_of(fault):
                yield _finding(fault)


def _is_spoken_of(fault: Fault) -> bool:
    """Whether another rule tells it, or the reader takes the words for what they mean."""
    value, kinds = fault.place.value, kinds_of(fault.schema)
    if isinstance(value, str):
        is_number = number_of(value) is not None and {"integer", "number"} & set(kinds)
        is_word = value.lower() in ("true", "false") and "boolean" in kinds
        is_item = "array" in kinds  # one word for a list of one
        return bool(is_number or is_word or is_item)
    if value is None or not kinds:
        return True  # a key without a value is as if it were absent, for most readers
    return "string" in kinds and isinstance(value, bool)  # `no` in YAML has its own rule


def _finding(fault: Fault) -> Finding:
    value, kinds = fault.place.value, kinds_of(fault.schema)
    wanted = joined(_WORDS[kind] for kind in kinds if kind != "null")
    is_whole = isinstance(value, float) and isfinite(value) and "integer" in kinds
    near = round(value) if is_whole and isinstance(value, float) else None
    return Finding(
        f"`{fault.path}` has to be {wanted}, and is {shown(value)}",
        (fault.place.label("of another type"),),
        (),
        f"write {near}" if near is not None else f"write {wanted}",
        Fix((fault.place.replaced(near),), "unsafe") if near is not None else None,
    )


RULE = Rule(
    name="value-of-another-type",
    severity="error",
    consequence="init",
    consumers=("deepspeed", "transformers", "peft"),
    sources=(
        "deepspeed 0.19.8 runtime/zero/config.py: int_from_float for 15099494.4",
        "transformers 5.23.0 training_args.py `TrainingArguments`: types of its fields",
    ),
    check=_check,
)
