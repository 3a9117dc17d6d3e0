"""Master weights in 16 bits at a ZeRO stage that does not have them."""

from collections.abc import Iterator

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS = (
    "fp16.fp16_master_weights_and_grads",
    "bf16.bf16_master_weights_and_grads",
    "bf16.bf16_optimizer_states",
)
_ALL_STAGES = "deepspeed>=0.18"


def _check(run: Run) -> Iterator[Finding]:
    stage = run.effective("deepspeed", "zero_optimization.stage")
    for key in _KEYS:
        for place in run.each("deepspeed", key):
            if _is_on(place.value) and stage.known:
                yield from _at(run, place, stage.value, stage.place)
    yield from _states_alone(run)


def _at(run: Run, place: Place, stage: object, where: Place | None) -> Iterator[Finding]:
    old = place.path.startswith("fp16") and run.runs(_ALL_STAGES) is False
    allowed = (2,) if old else (1, 2, 3)
    if stage in allowed or not isinstance(stage, int):
        return
    words = "stage 2" if old else "stages 1 to 3"
    yield Finding(
        f"{place.path.rpartition('.')[2]} at ZeRO stage {stage}",
        (place.label("refused"), *([where.label("", primary=False)] if where else [])),
        (f"DeepSpeed has it at {words}",),
        f"use {words.replace('stages', 'one of the stages')}, or remove it",
    )


def _is_on(value: object) -> bool:
    """Also as a text, which DeepSpeed takes for what it says."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _states_alone(run: Run) -> Iterator[Finding]:
    """Optimizer states in bf16 need master weights in bf16."""
    for place in run.each("deepspeed", "bf16.bf16_optimizer_states"):
        weights = place.document.value("bf16.bf16_master_weights_and_grads")
        if _is_on(place.value) and not _is_on(weights):
            yield Finding(
                "bf16_optimizer_states without bf16_master_weights_and_grads",
                (place.label("refused"),),
                (),
                "set both, or neither",
            )


RULE = Rule(
    name="half-master-weights-without-zero",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.18.9 and 0.19.8 runtime/config.py `_do_error_check`: only with ZeRO stage "
            "1, 2, or 3; 0.14.5 to 0.17.6: fp16 only with stage 2"
        ),
    ),
    check=_check,
)
