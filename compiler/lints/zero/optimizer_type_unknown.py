"""An optimizer that neither DeepSpeed nor torch has under that name."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OWN: Final = frozenset(
    {"adagrad", "adam", "adamw", "lamb", "muadam", "muadamw", "musgd", "lion", "muon"}
    | {"onebitadam", "onebitlamb", "zerooneadam"}
)
_GONE: Final = frozenset({"onebitadam", "onebitlamb", "zerooneadam"})
"""By any case; the last three up to 0.18."""
_TORCH: Final = frozenset(
    {"Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "LBFGS", "Muon"}
    | {"NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "Optimizer"}
)
_MEANT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf", "fusedadam"), "AdamW"),
    **dict.fromkeys(("deepspeedcpuadam", "cpuadam", "cpu_adam", "fused_adam"), "AdamW"),
    **{name.lower(): name for name in _TORCH},
}


def _check(run: Run) -> Iterator[Finding]:
    for place in run.each("deepspeed", "optimizer.type"):
        value = place.value
        is_gone = isinstance(value, str) and value.lower() in _GONE and run.runs("deepspeed>=0.19")
        if not isinstance(value, str) or value in _TORCH:
            continue
        if place.document.kind == "simpletuner":
            continue  # it puts AdamW there: optimizer-replaced-under-deepspeed
        if value.lower() in _OWN and not is_gone:
            continue
        meant = _MEANT.get(value.lower())
        yield Finding(
            f"optimizer.type {value} is no optimizer of DeepSpeed or torch.optim",
            (place.label("refused"),),
            (
                "DeepSpeed's own names count in any case, torch's only as they are spelt",
                "its AdamW is fused on the device, and on the CPU where the states are offloaded",
            ),
            f"write {meant}" if meant else "write AdamW, or build the optimizer in the script",
            Fix((place.replaced(meant),), "safe") if meant else None,
        )


RULE = Rule(
    name="optimizer-type-unknown",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_is_supported_optimizer`, "
            "`_configure_basic_optimizer`; runtime/config.py `DEEPSPEED_OPTIMIZERS`"
        ),
        "torch 2.13.0 optim/__init__.py `__all__`",
    ),
    check=_check,
)
