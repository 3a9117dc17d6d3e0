"""Keys of ds_config.json that DeepSpeed takes one by one and refuses together."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.schemas.frozen import dataclass

_ZERO: Final = "zero_optimization."


@dataclass(frozen=True, slots=True)
class _Pair:
    key: str
    is_asked: Callable[[Any], bool]
    other: str
    excludes: Callable[[Any], bool]
    """By the other key's effective value."""
    why: str
    mend: str


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.lower() == "sum"


_PAIRS: Final = (
    _Pair(
        "gradient_allreduce_op",
        _is_word,
        f"{_ZERO}stage",
        lambda stage: stage == 3,
        "stage 3 averages gradients as it scatters them",
        "write gradient_allreduce_op: mean, or use stage 2",
    ),
    _Pair(
        f"{_ZERO}compute_grad_norm",
        lambda value: value is False,
        f"{_ZERO}stage",
        lambda stage: stage in (0, 3),
        "only stages 1 and 2 can do without the norm",
        "remove it, or use stage 1 or 2",
    ),
    _Pair(
        "optimizer.type",
        lambda value: isinstance(value, str) and value.lower() == "lamb",
        "fp16.loss_scale",
        lambda scale: type(scale) in (int, float) and scale > 0,
        "DeepSpeed's Lamb asks for a loss scale that adapts",
        "write loss_scale: 0",
    ),
)


def _check(run: Run) -> Iterator[Finding]:
    for pair in _PAIRS:
        for document in run.of("deepspeed"):
            place = document.get(pair.key)
            if place is None or not pair.is_asked(place.value):
                continue
            other = run.effective("deepspeed", pair.other)
            if other.known and pair.excludes(other.value):
                yield _finding(pair, place, other.value, other.place)
    yield from _dtype(run)


def _finding(pair: _Pair, place: Place, value: Any, other: Place | None) -> Finding:
    return Finding(
        f"{pair.key} {place.value} with {pair.other} {value} is refused",
        (place.label("refused"), *([other.label("", primary=False)] if other else [])),
        (pair.why,),
        pair.mend,
    )


_NAMES: Final = {
    "fp16": ("fp16", "float16", "half", "torch.float16"),
    "bf16": ("bf16", "bfloat16", "torch.bfloat16"),
}


def _dtype(run: Run) -> Iterator[Finding]:
    """`data_types.param_dtype` has to be what fp16 or bf16 makes of the model."""
    place = run.said("deepspeed", "data_types.param_dtype")
    if place is None or not isinstance(place.value, str) or run.runs("deepspeed<0.19"):
        return
    for mode, names in _NAMES.items():
        enabled = run.effective("deepspeed", f"{mode}.enabled")
        if enabled.value is True and place.value not in names:
            yield Finding(
                f"data_types.param_dtype {place.value} with {mode} enabled is refused",
                (
                    place.label("refused"),
                    *([enabled.place.label("", primary=False)] if enabled.place else []),
                ),
                (f"{mode} says in which dtype the model is kept",),
                "remove param_dtype",
            )


RULE = Rule(
    name="keys-refused-together",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.19.8 runtime/config.py `_do_error_check`: gradient_allreduce_op='sum' "
            "is not "
            "supported with ZeRO stage 3; runtime/zero/config.py `compute_grad_norm_valid`; "
            "runtime/engine.py `_assert_valid_mixed_precision_config`"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_do_optimizer_sanity_check`: DeepSpeed "
            "lamb optimizer requires dynamic loss scaling"
        ),
    ),
    check=_check,
)
