"""Samples with images are to be packed."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if run.model is None or run.model.architecture.kind != "vision-language":
        return
    for document in run.of("sft"):
        for key in ("packing", "padding_free"):
            at = document.get(key)
            if at is not None and at.value is True and not document.is_view:
                yield _finding(at, "TRL refuses data with images here; text alone is packed")
    for document in run.of("axolotl"):
        at = document.get("sample_packing")
        if at is not None and at.value is True and document.get("processor_type") is not None:
            yield _finding(at, "Axolotl's collator of images takes one sample a sequence")


def _finding(at: Place, why: str) -> Finding:
    return Finding(
        f"{at.path} over samples with images",
        (at.label("not for images"),),
        (why,),
        f"write {at.path}: false",
        Fix((at.replaced(value=False),), "unsafe"),
    )


RULE = Rule(
    name="images-packed",
    severity="warning",
    consequence="init",
    consumers=("trl", "axolotl"),
    sources=(
        (
            "trl 0.27.2 to 1.16.0 trainer/sft_trainer.py: Packing is not supported for vision "
            "datasets; Padding-free training is yet not supported for vision datasets"
        ),
        "axolotl 0.19.0 docs/multimodal.qmd: sample_packing: false",
    ),
    check=_check,
)
