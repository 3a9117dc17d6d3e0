"""Gradients are to be summed in another dtype, which only ZeRO can."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_DTYPE: Final = "data_types.grad_accum_dtype"
_WORDS: Final = {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "float16": "fp16"} | {
    "bfloat16": "bf16",
    "float32": "fp32",
    "half": "fp16",
    "float": "fp32",
}
_MOVED: Final[dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...] | None]]] = {
    ("bf16", "fp32"): ((0, 18), None),
    ("bf16", "bf16"): ((0,), (0, 17)),
}
"""Dtypes of model and sum that only some releases refuse: from which, and up to which."""
_UNNAMED: Final = (
    "nobody names the version of deepspeed: 0.14 to 0.17 sum the gradients of bf16 in fp32, "
    "and refuse bf16 up to 0.16"
)


def _check(run: Run) -> Iterator[Finding]:
    stage, asked = stage_of(run), run.effective("deepspeed", _DTYPE)
    if stage.value != 0 or asked.place is None or not isinstance(asked.value, str):
        return
    dtype, summed = _model_dtype(run), _WORDS.get(asked.value.removeprefix("torch."))
    if dtype is None or summed is None or not _is_refused(run, dtype, summed):
        return
    is_open = (dtype, summed) in _MOVED and not run.release("deepspeed").is_named
    yield Finding(
        f"gradients in {summed} of a model in {dtype} need ZeRO, and the stage is 0",
        (asked.place.label("refused"), *also(stage.place)),
        (
            "without ZeRO gradients are summed in the dtype of the model",
            *((_UNNAMED,) if is_open else ()),
        ),
        f"use stage 1, or remove {_DTYPE}",
        severity="warning" if is_open else None,
    )


def _is_refused(run: Run, dtype: str, summed: str) -> bool:
    release = run.release("deepspeed").version.release[:2]
    since, before = _MOVED.get((dtype, summed), ((0,), None))
    is_mixed = summed != dtype or before is not None
    return is_mixed and since <= release and (before is None or release < before)


def _model_dtype(run: Run) -> str | None:
    on = {dtype: run.effective("deepspeed", f"{dtype}.enabled") for dtype in ("bf16", "fp16")}
    if not all(each.known for each in on.values()):
        return None
    return next((dtype for dtype, each in on.items() if each.value is True), "fp32")


RULE = Rule(
    name="gradient-dtype-without-zero",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_do_optimizer_sanity_check`: "
            "raises for a model dtype and a gradient accumulation dtype that do not go together; "
            "bf16 with fp32 returns BFLOAT16 up to 0.17.6, and bf16 alone is refused up to 0.16.9"
        ),
    ),
    check=_check,
)
