"""Muon at stage 3 with gradients of which each rank has its part only."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_SCATTER = "zero_optimization.reduce_scatter"


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    kind = run.said("deepspeed", "optimizer.type")
    if kind is None or str(kind.value).lower() != "muon" or stage.value != 3:
        return
    if run.runs("deepspeed<0.18.9") is True:
        yield Finding(
            "DeepSpeed has no Muon for ZeRO-3 before 0.18.9",
            (kind.label("refused"), *also(stage.place)),
            (),
            "use stage 1 or 2, or a newer DeepSpeed",
        )
        return
    scatter = run.effective("deepspeed", _SCATTER)
    if scatter.value is not True:
        return
    edit = scatter.place.replaced(False) if scatter.place else kind.document.added(_SCATTER, False)
    yield Finding(
        "Muon at stage 3 needs reduce_scatter: false",
        (kind.label("refused"), *also(scatter.place), *also(stage.place)),
        (() if scatter.place else ("reduce_scatter is true where nothing is said",)),
        "write reduce_scatter: false",
        Fix((edit,), "safe") if edit else None,
    )


RULE = Rule(
    name="muon-needs-whole-gradients",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.18.9 to 0.19.8 runtime/zero/stage3.py `__init__`: Muon and reduce scatter "
            "cannot be used together; 0.17.6 to 0.18.8 runtime/engine.py "
            "`_configure_basic_optimizer`: not yet compatible with ZeRO Stage 3"
        ),
    ),
    check=_check,
)
