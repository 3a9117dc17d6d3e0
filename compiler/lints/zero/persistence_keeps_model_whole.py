"""Most parameters are below the size from which stage 3 shards."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_KEY: Final = "zero_optimization.stage3_param_persistence_threshold"
_LIMIT: Final = "zero_optimization.stage3_model_persistence_threshold"


def _check(run: Run) -> Iterator[Finding]:
    stage, threshold = stage_of(run), run.effective("deepspeed", _KEY)
    limit, model = run.effective("deepspeed", _LIMIT), run.model
    if stage.value != 3 or model is None or threshold.place is None:
        return
    if not is_number(threshold.value):
        return
    modules = model.architecture.modules
    total = sum(each.parameters for each in modules)
    small = sum(each.parameters for each in modules if _largest(each) < threshold.value)
    kept = min(small, limit.value) if is_number(limit.value) else small
    if 2 * kept <= total:
        return
    yield Finding(
        f"stage 3 keeps {kept / total:.0%} of {model.path} whole on every device",
        (
            threshold.place.label("parameters of fewer elements are not sharded"),
            *also(stage.place),
            *also(limit.place),
        ),
        ("a parameter below stage3_param_persistence_threshold is gathered once and kept",),
        'write "auto", or a number below the smallest matrix',
        sum=(
            Term("parameters kept whole", kept, "parameters"),
            Term("all parameters", total, "parameters"),
        ),
    )


def _largest(module: Any) -> int:
    """Elements of the module's weight: DeepSpeed asks each parameter by itself."""
    return int(module.parameters // max(module.copies, 1)) - int(module.bias)


RULE = Rule(
    name="persistence-keeps-model-whole",
    severity="warning",
    consequence="out-of-memory",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/parameter_offload.py "
            "`mark_persistent_parameters`: numel <= param_persistence_threshold stays, up to "
            "model_persistence_threshold in all"
        ),
    ),
    check=_check,
)
