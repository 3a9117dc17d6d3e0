"""fp16 and bf16 are both turned on."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.keys.known import kind_behind
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PAIRS: Final = (
    (("trainer",), "fp16", "bf16"),
    (("trainer",), "fp16_full_eval", "bf16_full_eval"),
    (("deepspeed",), "fp16.enabled", "bf16.enabled"),
    (("axolotl",), "fp16", "bf16"),
)


def _check(run: Run) -> Iterator[Finding]:
    for kinds, half, brain in _PAIRS:
        for document in run.of(*kinds):
            if not document.is_view or kind_behind(document) != "axolotl":
                yield from _both(document, half, brain)


def _both(document: Document, half: str, brain: str) -> Iterator[Finding]:
    first, second = document.get(half), document.get(brain)
    if first is None or second is None or first.value is not True or second.value is not True:
        return
    yield Finding(
        f"`{half}` and `{brain}` are both true",
        (first.label(""), second.label("", primary=False)),
        (),
        "keep one: bf16 where the hardware has it",
        consequence="init" if document.kind == "deepspeed" else None,
    )


RULE = Rule(
    name="fp16-and-bf16",
    severity="error",
    consequence="parse",
    consumers=("transformers", "deepspeed", "axolotl"),
    sources=(
        "transformers 4.40.2 to 5.23.0 training_args.py: ValueError, at most one of fp16 and bf16",
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `_initialize_params`: bfloat16 and fp16 "
            "modes "
            "cannot be simultaneously enabled"
        ),
    ),
    check=_check,
)
