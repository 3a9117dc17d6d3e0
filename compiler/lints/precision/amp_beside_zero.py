"""DeepSpeed's amp block beside ZeRO or 16-bit modes."""

from collections.abc import Iterator

from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for amp in run.each("deepspeed", "amp.enabled"):
        if amp.value is not True or run.runs("deepspeed<0.19") is not True:
            continue
        stage = run.effective("deepspeed", "zero_optimization.stage")
        if isinstance(stage.value, int) and stage.value > 0 and stage.place is not None:
            other, word = stage.place, f"ZeRO stage {stage.value}"
        else:
            half = next((e for e in _half(run) if e.value is True), None)
            if half is None or half.place is None:
                continue
            other, word = half.place, half.place.path.partition(".")[0]
        yield Finding(
            f"amp beside {word}",
            (amp.label("apex amp"), other.label("", primary=False)),
            ("apex's amp wraps a plain optimizer; DeepSpeed 0.19 has taken it out",),
            "remove amp, and use bf16 or fp16",
        )


def _half(run: Run) -> list[Effective]:
    return [run.effective("deepspeed", f"{dtype}.enabled") for dtype in ("fp16", "bf16")]


RULE = Rule(
    name="amp-beside-zero",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.18.9 runtime/engine.py `_do_optimizer_sanity_check`: Amp and "
            "ZeRO are not currently compatible; Cannot enable both amp with (legacy) fp16 or "
            "bfloat16 mode"
        ),
    ),
    check=_check,
)
