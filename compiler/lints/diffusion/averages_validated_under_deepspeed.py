"""SimpleTuner is to show pictures of averaged weights in a run on DeepSpeed."""

from collections.abc import Iterator
from typing import Any

from tunec.compiler.lints.diffusion.asked import configs, deepspeed_of, is_on, said
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        average, how = said(document, "use_ema"), said(document, "ema_validation")
        at = deepspeed_of(run, document)
        if average is None or at is None or not is_on(average):
            continue
        stage = _stage(run, at)
        if stage == 3:
            continue  # where it validates nothing
        if is_on(said(document, "validation_disable")) or (how is not None and how.value == "none"):
            continue
        yield Finding(
            "averaged weights are to be validated, and DeepSpeed runs the model",
            ((how or average).label("refused"), at.label("DeepSpeed", primary=False)),
            (
                (
                    "ema_validation is comparison where nobody says, and it ends with: EMA "
                    "validation is not supported via DeepSpeed"
                ),
            ),
            "write ema_validation: none",
            severity="warning" if stage is None else None,
        )


def _stage(run: Run, at: Place) -> Any:
    """ZeRO's, of the mapping in the file or of the file that it names; None: not known."""
    if isinstance(at.value, dict):
        block = at.value.get("zero_optimization", {})
        return block.get("stage", 0) if isinstance(block, dict) else None
    return run.effective("deepspeed", "zero_optimization.stage").value


RULE = Rule(
    name="averages-validated-under-deepspeed",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/validation.py `Validation.__init__`: "
            "sys.exit(1), EMA validation is not supported via DeepSpeed; trainer.py "
            "`init_validations`: none at stage 3, none with validation_disable; ema_validation is "
            "comparison (field_registry)"
        ),
    ),
    check=_check,
)
