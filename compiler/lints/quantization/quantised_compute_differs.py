"""4-bit weights are expanded into one 16-bit dtype, and the run computes in the other."""

from collections.abc import Iterator

from tunec.compiler.lints.quantization.base import quantised
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_HALF = ("bf16", "fp16")


def _check(run: Run) -> Iterator[Finding]:
    base = quantised(run)
    if base is None or base.form not in ("nf4", "fp4"):
        return
    expanded, computed = run.observed("quantization.compute"), run.observed("precision.compute")
    if expanded is None or computed is None or expanded.value == computed.value:
        return
    first, second = run.place(expanded), run.place(computed)
    if expanded.value not in _HALF or computed.value not in _HALF or not first or not second:
        return
    yield Finding(
        f"4-bit weights are expanded to {expanded.value}, and the run computes in {computed.value}",
        (
            first.label(f"{expanded.value}"),
            second.label(f"{computed.value}", primary=False),
        ),
        (
            (
                "bitsandbytes multiplies in its own compute dtype and casts back: every layer "
                "rounds to both, and fp16 keeps its overflow at 65504"
            ),
        ),
        "use one of the two",
    )


RULE = Rule(
    name="quantised-compute-differs",
    severity="warning",
    consequence="silent",
    consumers=("transformers", "trl"),
    sources=(
        (
            "bitsandbytes 0.49.0 and 0.50.2 nn/modules.py `Linear4bit.forward`: "
            "x.to(compute_dtype), and the "
            "result .to(inp_dtype)"
        ),
    ),
    check=_check,
)
