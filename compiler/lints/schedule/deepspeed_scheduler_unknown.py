"""A scheduler that neither DeepSpeed nor torch has."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OWN: Final = ("LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
_COSINE: Final = "WarmupCosineLR"
_TORCH: Final = (
    *("LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR"),
    *("ExponentialLR", "SequentialLR", "CosineAnnealingLR", "ChainedScheduler", "PolynomialLR"),
    *("ReduceLROnPlateau", "CyclicLR", "CosineAnnealingWarmRestarts", "OneCycleLR"),
)
_MEANT: Final = {
    "linear": "WarmupDecayLR",
    "cosine": "WarmupCosineLR",
    "constant_with_warmup": "WarmupLR",
    "WarmupLinearLR": "WarmupDecayLR",
    "CosineLR": "WarmupCosineLR",
}


def _check(run: Run) -> Iterator[Finding]:
    for kind in run.each("deepspeed", "scheduler.type"):
        name = kind.value
        if name == _COSINE and run.runs("deepspeed<0.12.4") is True:
            yield Finding(
                f"{run.release('deepspeed')} has no scheduler {name}",
                (kind.label("not recognised"),),
                ("it came with 0.12.4",),
                "use deepspeed 0.12.4 or newer, or WarmupDecayLR",
            )
        if not isinstance(name, str) or name == "auto" or name in (*_OWN, *_TORCH):
            continue
        near = [_MEANT[name]] if name in _MEANT else nearest(name, (*_OWN, *_TORCH))
        yield Finding(
            f"neither DeepSpeed nor torch has a scheduler {name}",
            (kind.label("not recognised"),),
            (f"DeepSpeed's own: {quoted(_OWN, 'and')}; the case of letters counts",),
            did_you_mean(near) or "remove the scheduler: the trainer then builds its own",
            Fix((kind.replaced(near[0]),), "unsafe") if len(near) == 1 else None,
        )


RULE = Rule(
    name="deepspeed-scheduler-unknown",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        "modelscope/ms-swift#1906 (WarmupCosineLR before 0.12.4)",
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_scheduler_from_config`: DeepSpeed does "
            "not recognize LR scheduler"
        ),
        "torch 2.13.0 optim/lr_scheduler.py: its classes",
    ),
    check=_check,
)
