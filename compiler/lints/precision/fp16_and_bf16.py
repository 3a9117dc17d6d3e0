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
    yield from _filled(run)
    yield from _by_its_old_name(run)
    for kinds, half, brain in _PAIRS:
        for document in run.of(*kinds):
            if not document.is_view or kind_behind(document) != "axolotl":
                yield from _both(document, half, brain)


def _by_its_old_name(run: Run) -> Iterator[Finding]:
    """`bfloat16` is read where there is no `bf16`."""
    for document in run.of("deepspeed"):
        if document.get("bf16") is None:
            yield from _both(document, "fp16.enabled", "bfloat16.enabled")


def _filled(run: Run) -> Iterator[Finding]:
    """Both `auto`, and the trainer turns on both: one for training, the other for evaluation."""
    half, brain = (run.effective("deepspeed", f"{each}.enabled") for each in ("fp16", "bf16"))
    if "filled" not in (half.source, brain.source) or half.value is not True:
        return
    said = {name for each in ("fp16", "bf16") for name in (each, f"{each}_full_eval")}
    written = {name for name in said if (at := run.said("trainer", name)) and at.value is True}
    if brain.value is not True or len({name[:4] for name in written}) < 2:
        return  # a default of TRL's classes alone does not count
    yield Finding(
        "the trainer fills in both fp16.enabled and bf16.enabled",
        tuple(
            each.place.label("true", primary=each is half) for each in (half, brain) if each.place
        ),
        ("fp16 and fp16_full_eval fill in the one, bf16 and bf16_full_eval the other",),
        "train and evaluate in the same precision",
        consequence="init",
    )


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
            "modes cannot be simultaneously enabled"
        ),
    ),
    check=_check,
)
