"""FlashAttention 2 in a run that computes in fp32."""

from collections.abc import Iterator

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.precision.words import computes_in_half, loaded_in
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FLASH = ("flash_attention_2", "flash_attention_3")


def _check(run: Run) -> Iterator[Finding]:
    attention = run.observed("attention.implementation")
    place = run.place(attention)
    if attention is None or attention.value not in _FLASH or place is None:
        return
    whole = _fp32(run)
    if whole is None or run.value("quantization.format", "none") not in (None, "none"):
        return
    yield Finding(
        f"{attention.value} in a run of fp32",
        (place.label("fp16 and bf16 only"), whole.label("fp32", primary=False)),
        ("the kernel ends in `FlashAttention only support fp16 and bf16 data type`",),
        "turn bf16 or fp16 on, or use sdpa",
    )


def _fp32(run: Run) -> Place | None:
    """Where the run is said to be fp32, with nothing that computes in 16 bits."""
    if run.value("precision.compute") == "fp32":
        return run.place(run.observed("precision.compute"))
    if computes_in_half(run) is not False or _deepspeed_in_half(run):
        return None
    return next(loaded_in(run, "fp32"), None)


def _deepspeed_in_half(run: Run) -> bool:
    return any(
        run.effective("deepspeed", f"{dtype}.enabled").value is True for dtype in ("bf16", "fp16")
    )


RULE = Rule(
    name="flash-attention-in-fp32",
    severity="error",
    consequence="step",
    consumers=("transformers",),
    sources=(
        (
            "transformers 5.23.0 modeling_utils.py `_flash_attn_can_dispatch`: only supports "
            "torch.float16 and torch.bfloat16 dtypes, a warning"
        ),
        (
            "Dao-AILab/flash-attention 2.8 csrc/flash_attn/flash_api.cpp `mha_fwd`: FlashAttention "
            "only support fp16 and bf16 data type"
        ),
    ),
    check=_check,
)
