"""Samples with images are to be packed."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Severity
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.vision.seeing import sees

BY_MODEL: Final = "trl>=0.22,<1.11"
"""Releases whose trainer of samples looks at the model; later ones look at the data."""


def _check(run: Run) -> Iterator[Finding]:
    if not sees(run):
        return
    by_model = run.runs(BY_MODEL)
    for document in run.of("sft"):
        for key in ("packing", "padding_free"):
            at = document.get(key)
            if at is not None and at.value is True and not document.is_view:
                why = "TRL refuses data with images here; text alone is packed"
                yield _finding(at, why, None if by_model else "warning")
    for document in run.of("axolotl"):
        at = document.get("sample_packing")
        if at is not None and at.value is True and document.get("processor_type") is not None:
            why = "Axolotl's collator of images takes one sample a sequence"
            yield _finding(at, why, "warning")


def _finding(at: Place, why: str, severity: Severity | None) -> Finding:
    return Finding(
        f"{at.path} over samples with images",
        (at.label("not for images"),),
        (why,),
        f"write {at.path}: false",
        Fix((at.replaced(value=False),), "unsafe"),
        severity=severity,
    )


RULE = Rule(
    name="images-packed",
    severity="error",
    consequence="init",
    consumers=("trl", "axolotl"),
    sources=(
        (
            "trl 0.22.2 to 1.9.2 trainer/sft_trainer.py: Packing is not supported for "
            "vision-language models; Padding-free training is yet not supported; 1.16.0: for "
            "vision datasets"
        ),
        "axolotl 0.19.0 docs/multimodal.qmd: sample_packing: false",
    ),
    check=_check,
)
