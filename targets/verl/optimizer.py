"""Rows of an optimizer's section: the algorithm, its settings, and its learning rate schedule."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, same
from tunec.schemas.terms import OptimizerKernel, OptimizerName
from tunec.targets.rows import row
from tunec.targets.verl.packages import SOURCE

_CONFIG: Final = f"{SOURCE} workers/config/optimizer.py `FSDPOptimizerConfig`"
_BUILDS: Final = f"{SOURCE} workers/config/optimizer.py `build_optimizer`"
_SCHEDULE: Final = f"{SOURCE} workers/engine/fsdp/transformer_impl.py `_build_lr_scheduler`"
_OVERRIDE: Final = "override_optimizer_config"
_TORCH, _BITS = "torch.optim", "bitsandbytes.optim"

CLASSES: Final[Mapping[tuple[OptimizerName, OptimizerKernel], tuple[str, str]]] = {
    ("adamw", "foreach"): ("AdamW", _TORCH),
    ("adamw", "fused"): ("AdamW", _TORCH),
    ("sgd", "foreach"): ("SGD", _TORCH),
    ("adamw_8bit", "bitsandbytes"): ("AdamW8bit", _BITS),
    ("paged_adamw_8bit", "bitsandbytes"): ("PagedAdamW8bit", _BITS),
    ("paged_adamw_32bit", "bitsandbytes"): ("PagedAdamW32bit", _BITS),
}
"""Class and module by algorithm and kernel: torch's use foreach by default."""


def has_moments(plan: Plan) -> bool:
    """Whether the optimizer takes betas and an epsilon."""
    return "adam" in plan.optimizer.name


# ── the algorithm ────────────────────────────────────────────────────────────────────────────────


def _write_class(at: str, plan: Plan) -> Mapping[str, Json]:
    known = CLASSES.get((plan.optimizer.name, plan.optimizer.kernel))
    if known is None:
        return {}
    fused = {f"{at}.{_OVERRIDE}.fused": True} if plan.optimizer.kernel == "fused" else {}
    return {f"{at}.optimizer": known[0], f"{at}.optimizer_impl": known[1], **fused}


def _read_class(at: str, found: Mapping[str, Json]) -> Mapping[str, Any]:
    named = (found.get(f"{at}.optimizer", "AdamW"), found.get(f"{at}.optimizer_impl", _TORCH))
    kernel = "fused" if found.get(f"{at}.{_OVERRIDE}.fused") is True else "foreach"
    pairs = [pair for pair, known in CLASSES.items() if known == named]
    fitting = [pair for pair in pairs if len(pairs) == 1 or pair[1] == kernel]
    return {"optimizer.name": fitting[0][0], "optimizer.kernel": fitting[0][1]} if fitting else {}


def _algorithm(at: str, rate: float) -> tuple[Entry, ...]:
    betas, epsilon, clip = f"{at}.betas", f"{at}.{_OVERRIDE}.eps", f"{at}.clip_grad"
    return (
        row(
            (f"{at}.optimizer", f"{at}.optimizer_impl", f"{at}.{_OVERRIDE}.fused"),
            ("optimizer.name", "optimizer.kernel"),
            lambda plan: _write_class(at, plan),
            lambda found: _read_class(at, found),
            _BUILDS,
            absent=_read_class(at, {}),
        ),
        same(f"{at}.lr", "optimizer.learning_rate", _CONFIG, default=rate),
        same(f"{at}.weight_decay", "optimizer.weight_decay", _CONFIG, default=0.01),
        row(
            (betas,),
            ("optimizer.beta1", "optimizer.beta2"),
            lambda plan: {betas: [plan.optimizer.beta1, plan.optimizer.beta2]},
            lambda found: dict(
                zip(("optimizer.beta1", "optimizer.beta2"), found[betas], strict=False)
            ),
            _BUILDS,
            absent={"optimizer.beta1": 0.9, "optimizer.beta2": 0.999},
            when=has_moments,
        ),
        same(
            epsilon,
            "optimizer.epsilon",
            f"{_BUILDS}: arguments of the class itself",
            default=1e-8,
            when=has_moments,
        ),
        row(
            (clip,),
            ("optimizer.max_grad_norm",),
            lambda plan: {clip: plan.optimizer.max_grad_norm or None},
            lambda found: {"optimizer.max_grad_norm": found[clip]} if found[clip] else {},
            f"{_CONFIG}; `optimizer_step` takes no None, and 0 leaves no gradient",
            absent={"optimizer.max_grad_norm": 1.0},
        ),
    )


# ── its rate ─────────────────────────────────────────────────────────────────────────────────────

_KINDS: Final = {
    "constant": "constant",
    "constant_with_warmup": "constant",
    "cosine": "cosine",
    "cosine_with_min_lr": "cosine",
}
_LEAST: Final = "min_lr_rate"
"""transformers' name for `min_lr_ratio` of verl."""


def _least(plan: Plan) -> float:
    """The share of the peak rate at which a cosine ends."""
    return float(dict(plan.schedule.arguments).get(_LEAST, 0.0))


def _write_kind(at: str, plan: Plan) -> Mapping[str, Json]:
    kind = _KINDS.get(plan.schedule.kind)
    if kind is None:
        return {}
    least = (
        {f"{at}.min_lr_ratio": _least(plan)} if plan.schedule.kind == "cosine_with_min_lr" else {}
    )
    return {f"{at}.lr_scheduler_type": kind, **_write_warmup(at, plan), **least}


def _read_kind(at: str, found: Mapping[str, Json]) -> Mapping[str, Any]:
    kind = found.get(f"{at}.lr_scheduler_type", "constant")
    least = found.get(f"{at}.min_lr_ratio") or 0.0
    if kind == "cosine":
        arguments = ((_LEAST, least),) if least else ()
        named = "cosine_with_min_lr" if least else "cosine"
        return {"schedule.kind": named, "schedule.arguments": arguments}
    rises = any(_rising(at, found).values())
    named = "constant_with_warmup" if rises else "constant"
    return {"schedule.kind": named, "schedule.arguments": ()} if kind == "constant" else {}


def _rising(at: str, found: Mapping[str, Json]) -> dict[str, Json]:
    """The warmup in the file: steps above 0 override a share."""
    steps = found.get(f"{at}.lr_warmup_steps")
    steps = steps if isinstance(steps, int) and steps > 0 else 0
    return {"steps": steps, "share": 0 if steps else found.get(f"{at}.lr_warmup_steps_ratio", 0)}


def _write_warmup(at: str, plan: Plan) -> Mapping[str, Json]:
    if plan.schedule.warmup_steps is None:
        return {f"{at}.lr_warmup_steps_ratio": plan.schedule.warmup_share}
    return {f"{at}.lr_warmup_steps": plan.schedule.warmup_steps}


def _in_steps(plan: Plan) -> bool:
    """Whether the warmup steps are known: verl would round a share down."""
    return plan.schedule.warmup_steps is not None


def _read_steps(at: str, found: Mapping[str, Json]) -> Mapping[str, Any]:
    said = _rising(at, found)
    return {} if said["share"] else {"schedule.warmup_steps": said["steps"]}


def _read_share(at: str, found: Mapping[str, Json]) -> Mapping[str, Any]:
    share = _rising(at, found)["share"]
    return {"schedule.warmup_share": share} if share else {}


def _rate(at: str) -> tuple[Entry, ...]:
    warmup = (f"{at}.lr_warmup_steps", f"{at}.lr_warmup_steps_ratio")
    return (
        row(
            (f"{at}.lr_scheduler_type", f"{at}.min_lr_ratio", *warmup),
            ("schedule.kind", "schedule.arguments"),
            lambda plan: _write_kind(at, plan),
            lambda found: _read_kind(at, found),
            f"{_CONFIG} `__post_init__`: constant or cosine",
            absent=_read_kind(at, {}),
        ),
        row(
            warmup,
            ("schedule.warmup_steps",),
            lambda plan: _write_warmup(at, plan),
            lambda found: _read_steps(at, found),
            _SCHEDULE,
            absent={"schedule.warmup_steps": 0},
            when=_in_steps,
        ),
        row(
            warmup,
            ("schedule.warmup_share",),
            lambda plan: _write_warmup(at, plan),
            lambda found: _read_share(at, found),
            _SCHEDULE,
            when=lambda plan: not _in_steps(plan),
        ),
    )


def optimizer(at: str, rate: float) -> tuple[Entry, ...]:
    """The rows of the section `at`; `rate` is the learning rate in verl's own file."""
    return (*_algorithm(at, rate), *_rate(at))
