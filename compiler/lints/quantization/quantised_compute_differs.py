"""4-bit weights are expanded into one 16-bit dtype, and the run computes in the other."""

from collections.abc import Iterator

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.quantization.base import Base, quantised
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_HALF = ("bf16", "fp16")
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
_KEY = "bnb_4bit_compute_dtype"


def _check(run: Run) -> Iterator[Finding]:
    base = quantised(run)
    if base is None or base.form not in ("nf4", "fp4"):
        return
    computed, (expanded, first) = run.observed("precision.compute"), _expanded(run, base)
    second = run.place(computed)
    if computed is None or expanded == computed.value or not first or not second:
        return
    if expanded not in _HALF or computed.value not in _HALF:
        return
    yield Finding(
        f"4-bit weights are expanded to {expanded}, and the run computes in {computed.value}",
        (
            first.label(f"{expanded}"),
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


def _expanded(run: Run, base: Base) -> tuple[str | None, Place | None]:
    """The dtype of the products, by bitsandbytes' own key where it stands beside the bits."""
    block, dot, _ = base.place.path.rpartition(".")
    own = base.document.get(f"{block}{dot}{_KEY}")
    if own is not None and (dot or base.document.kind == "model"):
        return _DTYPES.get(str(own.value)), own
    said = run.observed("quantization.compute")
    return (said.value if said is not None else None), run.place(said)


RULE = Rule(
    name="quantised-compute-differs",
    severity="warning",
    consequence="silent",
    consumers=("transformers", "trl"),
    sources=(
        (
            "bitsandbytes 0.49.0 and 0.50.2 nn/modules.py `Linear4bit.forward`: "
            "x.to(compute_dtype), and the result .to(inp_dtype)"
        ),
    ),
    check=_check,
)
