"""Packing needs a length, and has none."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("sft"):
        packing, length = document.get("packing"), document.get("max_length")
        if packing is None or packing.value is not True or length is None:
            continue
        if length.value is None:
            yield Finding(
                "packing has no max_length to fill",
                (length.label("refused"), packing.label("", primary=False)),
                (),
                "write max_length: 2048",
            )


RULE = Rule(
    name="packing-without-length",
    severity="error",
    consequence="init",
    consumers=("trl>=0.20",),
    sources=(
        (
            "trl 0.27.2 to 1.16.0 trainer/sft_trainer.py `_prepare_dataset`: When packing is "
            "enabled, `max_length` can't be `None`"
        ),
    ),
    check=_check,
)
