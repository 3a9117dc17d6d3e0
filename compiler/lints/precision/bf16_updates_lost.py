"""Weights in bf16 without fp32 copies, at a learning rate that rounds away."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.adapter.lora import has_adapter
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.precision.words import loaded_in, on_deepspeed
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_HALF_STEP: Final = 2.0**-9
"""A number of bf16 changes only if something of at least this share of it is added: it has 8 bits
of precision, and a tie goes to the even neighbour."""
_TYPICAL: Final = 0.02
"""Standard deviation with which transformers initialises weights (`initializer_range`)."""
_ROUNDS_UP: Final = ("adamw_bf16", "stochastic", "optimi", "kahan", "anyprecision")


def _check(run: Run) -> Iterator[Finding]:
    weights = _pure(run)
    rate = run.effective("trainer", "learning_rate")
    if weights is None or not isinstance(rate.value, int | float) or rate.value <= 0:
        return
    least = rate.value / _HALF_STEP
    if least >= _TYPICAL or _keeps_copies(run) or _rounds_well(run):
        return
    label: list[Label] = [weights.label("trained in bf16", primary=rate.place is None)]
    if rate.place is not None:
        label.insert(0, rate.place.label("a step of Adam is about this large"))
    yield Finding(
        f"at learning rate {rate.value:g} weights above {least:.2g} do not move in bf16",
        tuple(label),
        (
            (
                f"bf16 has 8 bits: what is less than 1/512 of a weight rounds away; {rate.value:g} "
                f"x "
                f"512 = {least:.2g}, and weights are around {_TYPICAL}"
            ),
        ),
        "load what is trained in fp32 and compute in bf16, or use a rate ten times as high",
    )


def _pure(run: Run) -> Place | None:
    """Where a file says that the trained weights are bf16."""
    if has_adapter(run):
        return None
    for kind, key in (("llamafactory", "pure_bf16"), ("axolotl", "bfloat16")):
        for place in run.each(kind, key):
            if place.value is True:
                return place
    return next(loaded_in(run, "bf16"), None)


def _keeps_copies(run: Run) -> bool:
    """DeepSpeed keeps fp32 copies; FSDP may, which is for its own rule."""
    fsdp = any(each.value == "FSDP" for each in run.each("accelerate", "distributed_type"))
    return on_deepspeed(run) or fsdp or run.said("trainer", "fsdp", "fsdp_config") is not None


def _rounds_well(run: Run) -> bool:
    name = run.effective("trainer", "optim").value
    return isinstance(name, str) and any(word in name for word in _ROUNDS_UP)


RULE = Rule(
    name="bf16-updates-lost",
    severity="warning",
    consequence="silent",
    consumers=("torch",),
    sources=(
        "bfloat16: 8 bits of significand (Intel, BFLOAT16 hardware numerics definition, 2018)",
        (
            "arXiv 2010.06192 (Zamirai and others, Revisiting BFloat16 Training): nearest rounding "
            "cancels small weight updates"
        ),
        "NVIDIA-NeMo/Automodel#3444, vllm-project/speculators#765: weights that stand still",
        "arXiv 1412.6980 (Adam) section 2.1: a step is bounded by about the learning rate",
        "llamafactory 0.9.5 model/adapter.py `init_adapter`: pure_bf16 leaves bf16",
    ),
    check=_check,
)
