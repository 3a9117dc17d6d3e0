"""A parameter of DeepSpeed's optimizer section that the class which is built does not have."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

Words = frozenset[str]

_OF_TORCH: Final[Words] = frozenset({"lr", "weight_decay", "foreach", "maximize", "differentiable"})
_MOMENTS: Final[Words] = _OF_TORCH | {"betas", "eps", "capturable"}
_TORCH_ADAM: Final[Words] = _MOMENTS | {"amsgrad", "fused"}
_ADAM: Final[Words] = frozenset({"lr", "bias_correction", "betas", "eps", "weight_decay"})
_ONE_BIT: Final[Words] = _ADAM | {"eps_inside_sqrt", "amsgrad", "cuda_aware", "comm_backend_name"}
_OF_LAMB: Final[Words] = frozenset(
    {"max_coeff", "min_coeff", "coeff_beta", "factor_max", "factor_min", "factor_threshold"}
)
_OF_STEPS: Final[Words] = frozenset(
    {"var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper"}
)
_NEVER: Final = "max_grad_norm"
_WITHOUT: Final = "amsgrad"
_POPPED: Final[Words] = frozenset({"torch_adam", "adam_w_mode"})
"""What DeepSpeed takes out of Adam's parameters before it hands on the rest."""
_ON_CPU: Final[Mapping[str, tuple[str, Words]]] = {
    "adam": ("DeepSpeedCPUAdam", _ADAM | {_WITHOUT, "fp32_optimizer_states"}),
    "lion": ("DeepSpeedCPULion", frozenset({"lr", "betas", "weight_decay"})),
    "adagrad": ("DeepSpeedCPUAdagrad", frozenset({"lr", "eps", "weight_decay", _WITHOUT})),
}
_ON_DEVICE: Final[Mapping[str, tuple[str, Words]]] = {
    "adam": ("FusedAdam", _ADAM | {_WITHOUT, "set_grad_none"}),
    "lion": ("FusedLion", frozenset({"lr", "betas", "weight_decay", "set_grad_none"})),
    "lamb": ("FusedLamb", _ADAM | {_WITHOUT, "eps_inside_sqrt", "max_coeff", "min_coeff"}),
    "onebitadam": ("OnebitAdam", _ONE_BIT | {"freeze_step"}),
    "onebitlamb": ("OnebitLamb", _ONE_BIT | _OF_LAMB | {"freeze_step"}),
    "zerooneadam": ("ZeroOneAdam", _ONE_BIT | _OF_STEPS),
    "adagrad": (
        "torch.optim.Adagrad",
        _OF_TORCH | {"lr_decay", "initial_accumulator_value", "eps", "fused"},
    ),
}
_STATES: Final = "fp32_optimizer_states"
_TORCH: Final[Mapping[str, Words]] = {
    "SGD": _OF_TORCH | {"momentum", "dampening", "nesterov", "fused"},
    "Adafactor": _OF_TORCH - {"differentiable"} | {"beta2_decay", "eps", "d"},
    "Adadelta": _OF_TORCH | {"rho", "eps", "capturable"},
    "Adamax": _MOMENTS,
    "NAdam": _MOMENTS | {"momentum_decay", "decoupled_weight_decay"},
    "RAdam": _MOMENTS | {"decoupled_weight_decay"},
    "RMSprop": _OF_TORCH | {"alpha", "eps", "momentum", "centered", "capturable"},
    "ASGD": _OF_TORCH | {"lambd", "alpha", "t0", "capturable"},
}


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        built = _built(run, document)
        for place in _parameters(document) if built is not None else ():
            name, words = built or ("", frozenset())
            fault = _fault(run, place, name, words)
            if fault is not None:
                yield _finding(place, name, words, *fault)


def _parameters(document: Document) -> Iterator[Place]:
    held = document.get("optimizer.params")
    for key in (held.node.fields or {}) if held is not None else ():
        place = document.get(f"optimizer.params.{key}")
        if place is not None:
            yield place


def _built(run: Run, document: Document) -> tuple[str, Words] | None:
    """The class that DeepSpeed builds, and the parameters that it hands on to it."""
    kind = document.value("optimizer.type")
    if not isinstance(kind, str):
        return None
    if kind in _TORCH:
        return f"torch.optim.{kind}", _TORCH[kind]
    name = {"adamw": "adam"}.get(kind.lower(), kind.lower())
    if name == "adam" and document.value("optimizer.params.torch_adam", False):
        return f"torch.optim.{'AdamW' if kind.lower() == 'adamw' else 'Adam'}", _TORCH_ADAM
    device = run.effective("deepspeed", "zero_optimization.offload_optimizer.device")
    return (_ON_CPU if device.value in ("cpu", "nvme") else _ON_DEVICE).get(
        name, _ON_DEVICE.get(name)
    )


def _fault(run: Run, place: Place, name: str, words: Words) -> tuple[str, str] | None:
    key = place.path.rpartition(".")[2]
    if key == _NEVER:
        return "DeepSpeed refuses it by name", "write gradient_clipping at the top"
    is_told = "CPU" not in name or run.runs("deepspeed>=0.19") is not False
    if key == _WITHOUT and place.value and "torch" not in name and is_told:
        return f"{name} has no such variant", "remove it, or write torch_adam: true"
    if key in words or ("Adam" in name and key in _POPPED) or key == _STATES:
        return None
    return f"its parameters are {quoted(sorted(words), 'and')}", ""


def _finding(place: Place, name: str, words: Words, why: str, mend: str) -> Finding:
    key = place.path.rpartition(".")[2]
    near = nearest(key, sorted(words)) if not mend else []
    taken = {_sibling(place, each) for each in near}
    fix = Fix((place.renamed(near[0]),), "unsafe") if len(near) == 1 and True not in taken else None
    return Finding(
        f"{name} takes no {key}" + (f" {place.value}" if key == _WITHOUT else ""),
        (place.key_label("refused"),),
        (why,),
        mend or did_you_mean(near) or "remove it",
        fix,
    )


def _sibling(place: Place, name: str) -> bool:
    """Whether another parameter has that name already."""
    return place.document.get(f"optimizer.params.{name}") is not None


RULE = Rule(
    name="optimizer-parameter-refused",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_basic_optimizer`: "
            "max_grad_norm is not supported as an optimizer parameter; the others are keyword "
            "arguments of ops/adam/fused_adam.py `FusedAdam`, cpu_adam.py `DeepSpeedCPUAdam`, "
            "ops/lion, ops/lamb, ops/adagrad, runtime/fp16/onebit: TypeError, unexpected keyword "
            "argument; RuntimeError, FusedAdam does not support the AMSGrad variant"
        ),
        "torch 2.13.0 optim/__init__.py `__all__`: the arguments of each class",
    ),
    check=_check,
)
