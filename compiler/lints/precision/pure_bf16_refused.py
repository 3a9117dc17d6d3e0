"""LLaMA-Factory's pure_bf16 beside what it cannot be combined with."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        pure = document.get("pure_bf16")
        if pure is None or pure.value is not True:
            continue
        yield from _with_fp16(document, pure)
        yield from _with_zero_3(run, pure)


def _with_fp16(document: Document, pure: Place) -> Iterator[Finding]:
    half = document.get("fp16")
    if half is not None and half.value is True:
        yield Finding(
            "pure_bf16 with fp16: weights in bf16 under fp16 loss scaling",
            (half.label("scales the loss"), pure.label("weights in bf16", primary=False)),
            ("torch's GradScaler has no kernel for gradients in bf16",),
            "remove fp16",
            consequence="step",
        )


def _with_zero_3(run: Run, pure: Place) -> Iterator[Finding]:
    stage = run.slot("zero.stage")
    place = run.place(stage)
    if stage is not None and stage.value == 3 and place is not None:
        yield Finding(
            "pure_bf16 under ZeRO stage 3",
            (pure.label("refused"), place.label("stage 3", primary=False)),
            ("LLaMA-Factory: `pure_bf16` is incompatible with DeepSpeed ZeRO-3",),
            "use bf16: true; the fp32 copies of stage 3 are sharded",
        )


RULE = Rule(
    name="pure-bf16-refused",
    severity="error",
    consequence="parse",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 hparams/parser.py `get_train_args`: ValueError; "
            "compute_dtype is bfloat16 with pure_bf16, whatever fp16 says"
        ),
        (
            "torch 2.13.0 amp/grad_scaler.py `_unscale_grads_`: "
            "_amp_foreach_non_finite_check_and_unscale_cuda not implemented for BFloat16"
        ),
    ),
    check=_check,
)
