"""The optimizer, in config.json."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, constant, on_deepspeed, same
from tunec.schemas.terms import StateDtype
from tunec.targets.rows import without_deepspeed
from tunec.targets.simpletuner import optimizers
from tunec.targets.simpletuner.rows import fsdp
from tunec.targets.simpletuner.rows.model import DTYPE_FLAGS, TRAINER, trained_flags, weight_dtype

BETAS_MERGE: Final = "4.7.0"
"""The first release that reads betas beside `optimizer_config`; before, they are ignored."""

_SETTINGS: Final = ("optimizer", "optimizer_config", "optimizer_beta1", "optimizer_beta2")


def _write(plan: Plan, *, merges: bool) -> Mapping[str, Json]:
    choice = optimizers.choice_of(plan.optimizer)
    if choice is None:
        return {}
    betas = (plan.optimizer.beta1, plan.optimizer.beta2)
    pair = {"optimizer_beta1": betas[0], "optimizer_beta2": betas[1]}
    settings = optimizers.write_settings(optimizers.settings_of(plan.optimizer, choice))
    named = {"optimizer": choice.word, "optimizer_config": settings}
    keys: Mapping[str, Json] = {**named, **trained_flags(plan)}
    if choice.betas is None or (betas == choice.betas and not merges):
        return keys
    return {**keys, **pair}


def _read(found: Mapping[str, Json], *, merges: bool) -> Mapping[str, Any]:
    choice = optimizers.worded(str(found.get("optimizer")))
    if choice is None or found.get("deepspeed_config"):
        return {}
    settings = optimizers.read_settings(str(found.get("optimizer_config") or ""))
    slots: dict[str, Any] = {
        "optimizer.name": choice.name,
        "optimizer.kernel": optimizers.kernel_of(choice, settings),
        "optimizer.weight_decay": settings.get("weight_decay", choice.weight_decay),
        "states.optimizer": _moments(choice, found),
    }
    if choice.epsilon is not None:
        slots["optimizer.epsilon"] = settings.get("eps", choice.epsilon)
    if choice.betas is not None:
        given = _given_betas(found) if merges or not settings else None
        slots["optimizer.beta1"], slots["optimizer.beta2"] = given or choice.betas
    return slots


def _given_betas(found: Mapping[str, Json]) -> tuple[float, float] | None:
    pair = (found.get("optimizer_beta1"), found.get("optimizer_beta2"))
    return None if pair[0] is None or pair[1] is None else (float(pair[0]), float(pair[1]))


def _moments(choice: optimizers.Choice, found: Mapping[str, Json]) -> StateDtype | None:
    """The dtype of the moments: bitsandbytes' own, else the parameters' (`torch.zeros_like`)."""
    if fsdp.shards(found):
        return "fp32"
    if choice.kernel == "bitsandbytes":
        return "fp32" if choice.name.endswith("_32bit") else "int8"
    return weight_dtype(found)


def _slots(*, with_epsilon: bool, with_betas: bool) -> tuple[str, ...]:
    slots = ["optimizer.name", "optimizer.kernel", "optimizer.weight_decay", "states.optimizer"]
    slots += ["optimizer.epsilon"] if with_epsilon else []
    slots += ["optimizer.beta1", "optimizer.beta2"] if with_betas else []
    return tuple(slots)


def _steps_with(names: tuple[str, ...]) -> Callable[[Plan], bool]:
    return lambda plan: plan.optimizer.name in names and without_deepspeed(plan)


def _rows(*, merges: bool, since: str | None = None, until: str | None = None) -> tuple[Entry, ...]:
    """One row for each kind of algorithm, without the settings that it does not use."""
    return tuple(
        Entry(
            (*_SETTINGS, *DTYPE_FLAGS, "deepspeed_config", fsdp.ENABLED),
            _slots(with_epsilon=epsilon, with_betas=betas),
            lambda plan: _write(plan, merges=merges),
            lambda found: _read(found, merges=merges),
            "helpers/training/optimizer_param.py optimizer_choices, convert_arg_to_parameters",
            since,
            until,
            when=_steps_with(names),
        )
        for names, epsilon, betas in (
            (("sgd",), False, False),
            (_LIONS, False, True),
            (_WITH_EPSILON, True, True),
        )
    )


_LIONS: Final = ("lion", "lion_8bit", "paged_lion_8bit", "paged_lion_32bit")
_WITH_EPSILON: Final = (
    *("adamw", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "adamw_bf16", "adafactor"),
)


def _write_clipping(plan: Plan) -> Mapping[str, Json]:
    return {"max_grad_norm": plan.optimizer.max_grad_norm, "grad_clip_method": "norm"}


def _read_clipping(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The norm of clipping; the default method `value` bounds each element instead."""
    if found.get("grad_clip_method", "value") != "norm":
        return {}
    return {"optimizer.max_grad_norm": found.get("max_grad_norm", 2.0)}


OPTIMIZER: Final = (
    *_rows(merges=False, until=BETAS_MERGE),
    *_rows(merges=True, since=BETAS_MERGE),
    constant(
        "optimizer",
        "torch-adamw",
        "helpers/training/deepspeed.py prepare_model_for_deepspeed: a name must be given, and "
        "DeepSpeed's own file decides",
        when=on_deepspeed,
    ),
    same("learning_rate", "optimizer.learning_rate", TRAINER, default=4e-7),
    Entry(
        ("max_grad_norm", "grad_clip_method"),
        ("optimizer.max_grad_norm",),
        _write_clipping,
        _read_clipping,
        TRAINER,
    ),
)
