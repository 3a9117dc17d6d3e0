"""Rows of ds_config.json for the optimizer that DeepSpeed builds, or accepts from elsewhere."""

from collections.abc import Callable, Mapping
from typing import Any

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, constant, derived, fixed, same
from tunec.schemas.frozen import replace
from tunec.schemas.terms import OptimizerKernel, OptimizerName
from tunec.targets.deepspeed.reader import BUILT, PACKAGE, TESTED, TESTED_OF_OTHERS, Reader

_ENGINE = "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_basic_optimizer`"
_TYPE = "optimizer.type"
_ADAMW_MODE = "optimizer.params.adam_w_mode"
_TORCH, _FUSED, _FOREACH = (
    f"optimizer.params.{name}" for name in ("torch_adam", "fused", "foreach")
)

_BY_TYPE: dict[str, OptimizerName] = {name.lower(): slot for slot, name in BUILT.items()}

_OWN: tuple[OptimizerName, ...] = ("lion", "muon")
_WITH_BETAS: tuple[OptimizerName, ...] = ("adamw", "lion", "muon")
_WITH_EPSILON: tuple[OptimizerName, ...] = ("adamw", "muon")


def _read_name(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The optimizer's name. Type `adam` means AdamW unless adam_w_mode is off."""
    kind = str(found.get(_TYPE, "")).lower()
    if kind == "adam":
        return {"optimizer.name": "adamw"} if found.get(_ADAMW_MODE, True) is True else {}
    return {"optimizer.name": _BY_TYPE[kind]} if kind in _BY_TYPE else {}


_KERNELS: dict[tuple[bool, bool, bool | None], OptimizerKernel] = {
    (False, False, None): "own",
    (True, True, None): "fused",
    (True, False, True): "foreach",
    (True, False, None): "foreach",
    (True, False, False): "loop",
}
"""Kernels by (torch_adam, fused, foreach). If neither flag is set, torch's AdamW uses foreach on
CUDA (torch 2.13 optim/optimizer.py `_default_to_fused_or_foreach`); `own` is DeepSpeed's
FusedAdam."""


def _write_adam_kernel(plan: Plan) -> Mapping[str, Any]:
    keys: dict[OptimizerKernel, dict[str, Any]] = {
        "fused": {_TORCH: True, _FUSED: True},
        "foreach": {_TORCH: True, _FOREACH: True},
        "loop": {_TORCH: True, _FOREACH: False},
    }
    return keys.get(plan.optimizer.kernel, {})


def _read_adam_kernel(found: Mapping[str, Any]) -> Mapping[str, Any]:
    flags = (found.get(_TORCH, False), found.get(_FUSED, False), found.get(_FOREACH))
    return {"optimizer.kernel": _KERNELS[flags]} if flags in _KERNELS else {}


def _write_torch_kernel(plan: Plan) -> Mapping[str, Any]:
    """The kernel's keys without torch_adam, for a class that only torch.optim has."""
    return {key: value for key, value in _write_adam_kernel(plan).items() if key != _TORCH}


def _read_torch_kernel(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return _read_adam_kernel({**found, _TORCH: True})


def optimizer(reader: Reader) -> tuple[Entry, ...]:
    """Rows for the optimizer block and the related switches, for a reader."""
    built = reader.builds_optimizer
    return (*_which(built), *_kernels(built), *_parameters(built), *_switches(built))


def _which(built: Callable[[Plan], bool]) -> tuple[Entry, ...]:
    name = Entry(
        (_TYPE, _ADAMW_MODE),
        ("optimizer.name",),
        lambda plan: {_TYPE: BUILT[plan.optimizer.name]},
        _read_name,
        _ENGINE,
        when=built,
        package=PACKAGE,
    )
    return (name,)


def _kernels(built: Callable[[Plan], bool]) -> tuple[Entry, ...]:
    def on_device(name: OptimizerName) -> Callable[[Plan], bool]:
        return lambda plan: (
            built(plan) and plan.optimizer.name == name and plan.zero.offload_optimizer == "none"
        )

    kernel = Entry(
        (_TORCH, _FUSED, _FOREACH),
        ("optimizer.kernel",),
        _write_adam_kernel,
        _read_adam_kernel,
        f"{_ENGINE} and `get_optimizer_configuration`: FusedAdam without torch_adam",
        absent=(("0", {"optimizer.kernel": "own"}),),
        when=on_device("adamw"),
        package=PACKAGE,
    )
    torch = replace(
        kernel,
        keys=(_FUSED, _FOREACH),
        write=_write_torch_kernel,
        read=_read_torch_kernel,
        source=_ENGINE,
        absent=(),
        when=on_device("sgd"),
    )
    own = (
        fixed("optimizer.kernel", "own", _ENGINE, when=on_device(name), package=PACKAGE)
        for name in _OWN
    )
    return (kernel, torch, *own)


def _parameters(built: Callable[[Plan], bool]) -> tuple[Entry, ...]:
    def built_with(names: tuple[OptimizerName, ...]) -> Callable[[Plan], bool]:
        return lambda plan: built(plan) and plan.optimizer.name in names

    def key(name: str, slot: str, when: Callable[[Plan], bool]) -> Entry:
        full, path = f"optimizer.params.{name}", f"optimizer.{slot}"
        return same(full, path, _ENGINE, when=when, package=PACKAGE)

    betas = Entry(
        ("optimizer.params.betas",),
        ("optimizer.beta1", "optimizer.beta2"),
        lambda plan: {"optimizer.params.betas": [plan.optimizer.beta1, plan.optimizer.beta2]},
        _read_betas,
        _ENGINE,
        when=built_with(_WITH_BETAS),
        package=PACKAGE,
    )
    return (
        key("lr", "learning_rate", built),
        betas,
        key("eps", "epsilon", built_with(_WITH_EPSILON)),
        key("weight_decay", "weight_decay", built),
        constant(
            "optimizer.params.momentum",
            0.95,
            "deepspeed 0.17.6 to 0.19.8 runtime/zero/muon/original_muon.py `MuonWithAuxAdam`: its "
            "default, as of Keller Jordan's Muon",
            when=built_with(("muon",)),
            package=PACKAGE,
        ),
    )


def _read_betas(found: Mapping[str, Any]) -> Mapping[str, Any]:
    betas = found["optimizer.params.betas"]
    if not isinstance(betas, list) or len(betas) != 2:
        return {}
    return {"optimizer.beta1": betas[0], "optimizer.beta2": betas[1]}


def _switches(built: Callable[[Plan], bool]) -> tuple[Entry, ...]:
    def untested(plan: Plan) -> bool | None:
        name = plan.optimizer.name
        is_tested = name in TESTED if built(plan) else name in TESTED_OF_OTHERS
        return True if plan.zero.stage and not is_tested else None

    def own_on_cpu(plan: Plan) -> bool | None:
        return False if plan.zero.offload_optimizer != "none" and not built(plan) else None

    return (
        derived(
            "zero_allow_untested_optimizer",
            untested,
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_do_optimizer_sanity_check`",
            package=PACKAGE,
        ),
        derived(
            "zero_force_ds_cpu_optimizer",
            own_on_cpu,
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_optimizer`",
            package=PACKAGE,
        ),
    )
