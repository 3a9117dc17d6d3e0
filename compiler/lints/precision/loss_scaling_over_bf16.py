"""fp16 with loss scaling over trained weights that are bf16."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import has_adapter
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.precision.words import loaded_in, on_deepspeed
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    scaled = run.said("trainer", "fp16")
    if scaled is None or scaled.value is not True or on_deepspeed(run):
        return
    if run.value("quantization.format", "none") not in (None, "none"):
        yield from _adapters(run, scaled)
        return
    for place in loaded_in(run, "bf16"):
        is_adapted = has_adapter(run)
        is_whole = place.document.kind in (*TRL, "model")
        if is_adapted and run.runs("peft>=0.12") is not False:
            continue
        yield _finding(place, scaled, "trained in bf16", is_certain=is_whole or is_adapted)


def _adapters(run: Run, scaled: Place) -> Iterator[Finding]:
    """TRL makes the adapters of a quantised model bf16."""
    bits = run.said("trainer", "load_in_4bit", "load_in_8bit")
    if bits is None or bits.value is not True or not run.of(*TRL):
        return
    if run.runs("trl>=0.26") is not False:
        yield _finding(
            bits,
            scaled,
            "TRL trains adapters in bf16 over it",
            is_certain=run.runs("trl>=0.26") is True,
        )


def _finding(place: Place, scaled: Place, label: str, *, is_certain: bool) -> Finding:
    return Finding(
        "fp16 with loss scaling over trained weights in bf16",
        (place.label(label), scaled.label("scales the loss", primary=False)),
        (
            (
                "the first step ends in `_amp_foreach_non_finite_check_and_unscale_cuda not "
                "implemented for BFloat16`"
            ),
        ),
        "write bf16: true instead of fp16, or load in float32 what is trained",
        certain=is_certain,
    )


RULE = Rule(
    name="loss-scaling-over-bf16",
    severity="error",
    consequence="step",
    consumers=("torch", "trl"),
    sources=(
        (
            "torch 2.13.0 amp/grad_scaler.py `GradScaler._unscale_grads_`: "
            "_amp_foreach_non_finite_check_and_unscale_, on CUDA"
        ),
        "pytorch/pytorch#127176, huggingface/trl#4901, QwenLM/Qwen-VL#372",
        (
            "trl 0.26.2 to 1.16.0 trainer/sft_trainer.py: adapters of a quantised model are cast "
            "to bfloat16"
        ),
    ),
    check=_check,
)
