"""A value that is none of the words, or outside the range, that its reader takes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, nearest, quoted, shown
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import Fault, faults

_KINDS: Final = ("hf", "sft", "dpo", "grpo", "llamafactory")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed", *_KINDS, "peft"):
        if document.is_view:
            continue
        for fault in faults(run, document):
            if fault.what == "value" and not isinstance(fault.place.value, bool):
                yield _finding(fault)


def _finding(fault: Fault) -> Finding:
    value = fault.place.value
    words = [str(each) for each in _words(fault.schema)]
    near = nearest(value, words) if isinstance(value, str) else []
    allowed = quoted(words) if words else _range(fault.schema)
    return Finding(
        f"`{fault.path}` cannot be {shown(value)}",
        (fault.place.label("not taken"),),
        (f"taken: {allowed}",),
        f"did you mean {quoted(near)}?" if near else None,
        Fix((fault.place.replaced(near[0]),), "unsafe") if len(near) == 1 else None,
    )


def _words(schema: Mapping[str, Any]) -> list[Any]:
    inner = [word for each in schema.get("anyOf", ()) for word in _words(each)]
    return [*inner, *(word for word in schema.get("enum", ()) if word is not None)]


def _range(schema: Mapping[str, Any]) -> str:
    signs = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}
    return joined(
        (f"{sign} {schema[word]}" for word, sign in signs.items() if word in schema), "and"
    )


RULE = Rule(
    name="value-out-of-range",
    severity="error",
    consequence="init",
    consumers=("deepspeed", "transformers", "peft"),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/config.py, offload_config.py: enumerations "
            "and "
            "bounds"
        ),
        "transformers 5.23.0 trainer_utils.py, training_args.py: enumerations",
    ),
    check=_check,
)
