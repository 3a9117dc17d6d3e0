"""fp16 is asked for in a run that is kept off the GPUs."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OFF: Final = ("use_cpu", "no_cuda")
"""transformers 4.34 calls no_cuda use_cpu; 5.0 drops the old name."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer", "accelerate"):
        half, off = _half(document), _kept_off(document)
        if half is None or off is None or document.is_view:
            continue
        yield Finding(
            f"fp16 with {off.path}: the run computes in fp32",
            (half.label("not taken up"), off.label("no GPU", primary=False)),
            ("Accelerate turns on no autocast in fp16 and no loss scaling on a CPU",),
            "remove fp16, or use bf16, which a CPU computes in",
        )


def _half(document: Document) -> Place | None:
    if document.kind == "accelerate":
        word = document.get("mixed_precision")
        return word if word is not None and word.value == "fp16" else None
    flag = document.get("fp16")
    return flag if flag is not None and flag.value is True else None


def _kept_off(document: Document) -> Place | None:
    found = (document.get(key) for key in _OFF)
    return next((at for at in found if at is not None and at.value is True), None)


RULE = Rule(
    name="fp16-on-cpu",
    severity="warning",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.31.0 to 1.15.0 accelerator.py `Accelerator.__init__`: native_amp and the "
            'scaler for fp16 where device.type != "cpu"; run with 1.15.0: native_amp False'
        ),
        "transformers 5.23.0 training_args.py: fp16 with use_cpu is accepted",
    ),
    check=_check,
)
