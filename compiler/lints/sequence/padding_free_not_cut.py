"""Batches are flattened without packing, and a length is set that nothing enforces."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("sft"):
        free, packing = document.get("padding_free"), document.value("packing", False)
        if free is None or free.value is not True or packing or document.is_view:
            continue
        length = document.get("max_length")
        if length is not None and length.value is None:
            continue
        said = f"{length.value}" if length is not None else "1024 where nobody says it"
        yield Finding(
            f"padding_free without packing does not enforce max_length, which is {said}",
            (free.label("refused"), *([length.label("", primary=False)] if length else [])),
            (),
            "write packing: true, or max_length: null",
        )


RULE = Rule(
    name="padding-free-not-cut",
    severity="error",
    consequence="init",
    consumers=("trl>=1.3",),
    sources=(
        (
            "trl 1.3.0 to 1.16.0 trainer/sft_trainer.py: When `padding_free=True` without "
            "packing, `max_length` is not enforced; 0.27.2 does not ask"
        ),
    ),
    check=_check,
)
