"""A model that was trained in bf16 is fine-tuned in fp16."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    computed = run.observed("precision.compute")
    place, model = run.place(computed), run.model
    if computed is None or computed.value != "fp16" or place is None or model is None:
        return
    if model.stored_dtype != "bf16":
        return
    device = run.environment.weakest
    cannot = device is not None and not device.supports("bf16")
    yield Finding(
        f"{model.path} is stored in bf16, and the run computes in fp16",
        (place.label("fp16"),),
        (
            (
                "bf16 reaches 3.4e38, fp16 65504: activations that were learnt in bf16 may "
                "overflow, "
                "and the loss turns nan"
            ),
            *((f"{device.title} has no bf16 arithmetic",) if device and cannot else ()),
        ),
        "watch the loss scale; fp32 for the layers that overflow" if cannot else "use bf16",
        severity="note" if cannot else None,
    )


RULE = Rule(
    name="bf16-model-in-fp16",
    severity="warning",
    consequence="step",
    consumers=("torch",),
    sources=(
        (
            "huggingface/transformers#5651 (T5: 66246 in a feed-forward layer, beyond fp16), "
            "#9295; google-research/text-to-text-transfer-transformer#539 (bf16 activations)"
        ),
        "torch 2.13.0 finfo: float16 max 65504, bfloat16 max 3.39e38",
    ),
    check=_check,
)
