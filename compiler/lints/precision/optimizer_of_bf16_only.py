"""SimpleTuner's adamw_bf16 over weights that are not bf16."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("simpletuner"):
        optimizer = document.get("optimizer")
        if optimizer is None or optimizer.value != "adamw_bf16":
            continue
        if document.value("base_model_precision", "no_change") != "no_change":
            yield from _quantised(document, optimizer)
        else:
            yield from _whole(document, optimizer)


def _whole(document: Document, optimizer: Place) -> Iterator[Finding]:
    mixed = document.get("mixed_precision")
    if mixed is None or mixed.value not in ("fp16", "no", False):
        return
    yield Finding(
        f"adamw_bf16 over weights that are not bf16: mixed_precision is {_word(mixed)}",
        (mixed.label("not bf16"), optimizer.label("takes bf16 only", primary=False)),
        ("its first step ends in `only bfloat 16 is supported`",),
        "use mixed_precision bf16, or optimi-adamw",
    )


def _word(place: Place) -> str:
    return place.value if isinstance(place.value, str) else "no"


def _quantised(document: Document, optimizer: Place) -> Iterator[Finding]:
    base = document.get("base_model_default_dtype")
    if base is None or base.value != "fp32":
        return
    yield Finding(
        "adamw_bf16 over a quantised base in fp32 becomes optimi-adamw",
        (optimizer.label("replaced"), base.label("fp32", primary=False)),
        ("SimpleTuner logs an error and goes on with the other optimizer",),
        "use base_model_default_dtype bf16, or say optimi-adamw",
        consequence="silent",
    )


RULE = Rule(
    name="optimizer-of-bf16-only",
    severity="error",
    consequence="step",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/optimizers/adamw_bfloat16/__init__.py "
            "`AdamWBF16.step`: assert p.dtype == torch.bfloat16"
        ),
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/optimizer_param.py "
            "`determine_optimizer_class_with_config`"
        ),
        "bghira/SimpleTuner#755",
    ),
    check=_check,
)
