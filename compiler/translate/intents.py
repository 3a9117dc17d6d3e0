"""Slots as fields of a spec, and the values that express them."""

import shlex
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from msgspec import Struct

from tunec.schemas.objective_facts import OBJECTIVES

Values = Mapping[str, Any]
"""Known slots by path."""


class Intent(Struct, frozen=True):
    """A field of a spec that expresses slots."""

    path: tuple[str, ...]
    value: Any
    """Plain data; an empty mapping for a field with fields of its own."""
    slots: tuple[str, ...]
    is_told: bool = False
    """Whether a user would set it even if tunec decides the same."""


_TOLD: Final[Mapping[str, str]] = {
    "data.references": "data.references",
    "data.evaluation": "data.evaluation",
    "data.samples": "data.samples",
    "precision.compute": "precision.compute",
    "batch.global": "batch.global",
    "optimizer.learning_rate": "train.learning_rate",
    "optimizer.name": "train.optimizer.name",
    "schedule.kind": "train.schedule",
    "train.evaluations": "train.evaluations",
    "train.checkpoints": "train.checkpoints",
    "runtime.output": "train.output",
    "job.name": "name",
}
"""Fields for one slot, or for phrases about a run, that a user would set in any case."""
_NEEDED: Final[Mapping[str, str]] = {
    "attention.implementation": "attention",
    "data.format": "data.format",
    "data.chat_template": "data.chat_template",
    "data.loss_on": "data.loss_on",
    "data.packing": "data.packing",
    "precision.deprecated_fp16": "precision.deprecated_fp16",
    "optimizer.beta1": "train.optimizer.beta1",
    "optimizer.beta2": "train.optimizer.beta2",
    "optimizer.epsilon": "train.optimizer.epsilon",
    "optimizer.weight_decay": "train.optimizer.weight_decay",
    "optimizer.max_grad_norm": "train.optimizer.max_grad_norm",
    "launch.launcher": "launcher",
    "runtime.seed": "train.seed",
    "runtime.report_to": "train.report_to",
    "runtime.neftune_alpha": "train.neftune_alpha",
    **{
        f"job.{name}": f"job.{name}"
        for name in ("queue", "account", "qos", "image", "setup", "namespace", "volume")
    },
    "job.infra": "job.infra",
    "job.spot": "job.spot",
}
"""Fields for one slot, which are set if tunec would decide differently."""
_METHODS: Final[Mapping[str, str]] = {
    "none": "lora",
    "nf4": "qlora",
    "fp4": "qlora",
    "int8": "int8_lora",
}
"""The method by the storage of the base under an adapter."""
_DPO: Final[Mapping[str, str]] = {"beta": "objective.beta", "loss": "objective.loss"}
_ANSWERS: Final[Mapping[str, str]] = {
    "samples": "generation.samples",
    "completion": "generation.completion",
    "temperature": "generation.temperature",
    "generator": "generation.engine",
}
_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "dpo": _DPO,
    "grpo": {**_DPO, **_ANSWERS},
    "ppo": {
        "beta": "objective.beta",
        **_ANSWERS,
        **{
            name: f"ppo.{name}"
            for name in ("gamma", "lam", "epochs", "clip", "value_clip", "critic_learning_rate")
        },
    },
    "reward": {},
}
"""For each objective besides supervised training, the slot of each option."""
_SHARDING: Final = ("deepspeed", "fsdp")


def intents(values: Values) -> Iterator[Intent]:
    """The fields that can express known slots, in no order."""
    for table, is_told in ((_TOLD, True), (_NEEDED, False)):
        for slot, path in table.items():
            yield from _alone(values, slot, path, is_told=is_told)
    for rule in _RULES:
        yield from rule(values)


def _alone(values: Values, slot: str, path: str, *, is_told: bool = False) -> Iterator[Intent]:
    value = values.get(slot)
    if value is not None:
        yield Intent(tuple(path.split(".")), plain(value), (slot,), is_told)


def plain(value: Any) -> Any:
    """A slot's value for YAML: lists, and whole numbers without a point."""
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value


def _train(values: Values) -> Iterator[Intent]:
    """The data, as a list of its parts; an order that a list cannot express is pinned."""
    train, more = values.get("data.train"), values.get("data.more") or ()
    named = (train, *more)
    limits = values.get("data.limits") or (0,) * len(named)
    runs = [(each, len([*same])) for each, same in groupby(zip(named, limits, strict=False))]
    if (
        train is None
        or not (more or any(limits))
        or len(runs) > len({path for (path, _), _ in runs})
    ):
        yield from _alone(values, "data.train", "data.train", is_told=True)
        return
    parts = [_part(path, most, times) for (path, most), times in runs]
    slots = ("data.train", "data.more", "data.limits")
    yield Intent(("data", "train"), parts if more else parts[0], slots, is_told=True)


def _part(path: str, most: int, times: int) -> Any:
    """A data set as a spec lists it, by its path alone where all of it is seen once."""
    more = {**({"samples": most} if most else {}), **({"times": times} if times > 1 else {})}
    return {"path": path, **more} if more else path


# ── what is trained ──────────────────────────────────────────────────────────────────────────────


def _method(values: Values) -> Iterator[Intent]:
    kind = values.get("adapter.kind")
    if kind == "none":
        yield Intent(("method", "full"), {}, ("adapter.kind", "quantization.format"), is_told=True)
        if values.get("adapter.frozen"):
            yield from _alone(values, "adapter.frozen", "method.full.freeze")
    elif kind is not None:
        form = values.get("quantization.format", "none")
        name = _METHODS[form]
        slots = ("adapter.kind", "quantization.format")
        yield Intent(("method", name), {}, slots, is_told=True)
        yield from _adapter(values, f"method.{name}")
        if name == "qlora":
            yield Intent(("method", name, "format"), form, ("quantization.format",))
            yield from _alone(values, "quantization.double", f"method.{name}.double")


def _adapter(values: Values, at: str) -> Iterator[Intent]:
    for name in ("rank", "alpha", "targets"):
        yield from _alone(values, f"adapter.{name}", f"{at}.{name}", is_told=True)
    for name in ("dropout", "rslora", "dora", "also_train"):
        yield from _alone(values, f"adapter.{name}", f"{at}.{name}")
    if values.get("adapter.parameters"):
        yield Intent((*at.split("."), "experts"), value=True, slots=("adapter.parameters",))


def _objective(values: Values) -> Iterator[Intent]:
    kind = values.get("objective.kind")
    if kind is None or kind not in _OPTIONS:
        return
    yield Intent(("objective", kind), {}, ("objective.kind",), is_told=True)
    for name, slot in _OPTIONS[kind].items():
        yield from _alone(values, slot, f"objective.{kind}.{name}")
    if OBJECTIVES[kind].generates:
        rewards, at = values.get("objective.rewards"), f"objective.{kind}"
        if rewards:
            yield from _alone(values, "objective.rewards", f"{at}.rewards", is_told=True)
        if values.get("generation.device_share"):
            for name in ("device_share", "engine_sleeps", "offload_training"):
                yield from _alone(values, f"generation.{name}", f"{at}.{name}")
        yield from _critic(values)
    elif values.get("objective.reference") in ("resident", "precomputed"):
        yield from _alone(values, "objective.reference", "objective.dpo.reference")


def _critic(values: Values) -> Iterator[Intent]:
    """What PPO has of its own; a critic that starts as the model does needs no field."""
    if values.get("ppo.kl") not in (None, "none"):
        yield from _alone(values, "ppo.kl", "objective.ppo.kl")
    critic = values.get("ppo.critic")
    if critic and critic != values.get("model.path"):
        yield from _alone(values, "ppo.critic", "objective.ppo.critic", is_told=True)


def _evaluation(values: Values) -> Iterator[Intent]:
    made = values.get("evaluation.predictions")
    if made == "answers":
        at = ("evaluation", "generate")
        yield Intent(at, {}, ("evaluation.predictions",))
        for name in ("completion", "beams"):
            yield from _alone(values, f"evaluation.{name}", f"evaluation.generate.{name}")
    elif made == "logits":
        yield Intent(("evaluation", "metrics"), value=True, slots=("evaluation.predictions",))


# ── data and devices ─────────────────────────────────────────────────────────────────────────────


def _sequence(values: Values) -> Iterator[Intent]:
    if values.get("data.sequence"):
        yield from _alone(values, "data.sequence", "data.sequence", is_told=True)


def _images(values: Values) -> Iterator[Intent]:
    sides = [values.get(f"data.image_{side}") for side in ("width", "height")]
    if values.get("model.kind") == "diffusion":
        if sides[0] and sides[0] == sides[1]:
            slots = ("data.image_width", "data.image_height")
            yield Intent(("data", "resolution"), sides[0], slots, is_told=True)
        if values.get("data.frames"):
            yield from _alone(values, "data.frames", "data.frames", is_told=True)
        return
    yield from _alone(values, "data.images", "data.images.per_sample")
    for name, value in zip(("width", "height"), sides, strict=True):
        if value:
            yield Intent(("data", "images", name), value, (f"data.image_{name}",))


def _devices(values: Values) -> Iterator[Intent]:
    count = values.get("parallel.world")
    if count is None and {"devices.nodes", "devices.per_node"} <= values.keys():
        count = values["devices.nodes"] * values["devices.per_node"]
    slots = ("devices.nodes", "devices.per_node", "parallel.world")
    if count is not None:
        yield Intent(("devices", "count"), count, slots)


def _engine(values: Values) -> Iterator[Intent]:
    is_told = values.get("parallel.engine") in _SHARDING
    yield from _alone(values, "parallel.engine", "engine", is_told=is_told)


def _script(values: Values) -> Iterator[Intent]:
    """The script to start, with its words."""
    try:
        words = shlex.split(values.get("launch.script") or "")
    except ValueError:
        return
    if words:
        yield Intent(("run", "script"), words[0], ("launch.script",))
    if len(words) > 1:
        yield Intent(("run", "arguments"), words[1:], ("launch.script",))


def _time(values: Values) -> Iterator[Intent]:
    """The time limit, in the largest unit that divides it."""
    seconds = values.get("job.time_limit")
    if seconds:
        size, unit = next(each for each in _UNITS if seconds % each[0] == 0)
        yield Intent(("job", "time"), f"{seconds // size}{unit}", ("job.time_limit",))


_UNITS: Final = ((3600, "h"), (60, "min"), (1, "s"))


# ── the run's length ─────────────────────────────────────────────────────────────────────────────


def _length(values: Values) -> Iterator[Intent]:
    if values.get("schedule.epochs") is not None:
        yield from _alone(values, "schedule.epochs", "train.epochs", is_told=True)
    elif values.get("schedule.steps") is not None:
        slots = ("schedule.steps", "schedule.epochs")
        yield Intent(("train", "steps"), values["schedule.steps"], slots, is_told=True)


def _warmup(values: Values) -> Iterator[Intent]:
    share, steps = values.get("schedule.warmup_share"), values.get("schedule.warmup_steps")
    slots, at = ("schedule.warmup_share", "schedule.warmup_steps"), ("train", "warmup")
    is_told = values.get("schedule.kind") != "constant"
    if share:
        yield Intent((*at, "share"), plain(share), slots, is_told)
    elif steps is not None:
        yield Intent((*at, "steps"), steps, slots, is_told)


def _schedule_arguments(values: Values) -> Iterator[Intent]:
    told = values.get("schedule.arguments")
    if told:
        arguments = {name: plain(value) for name, value in told}
        yield Intent(("train", "schedule_arguments"), arguments, ("schedule.arguments",))


def _kept(values: Values) -> Iterator[Intent]:
    """The number of kept checkpoints; null keeps all."""
    slot = "schedule.keep_checkpoints"
    if slot in values:
        yield Intent(("train", "keep_checkpoints"), values[slot], (slot,))


_RULES: Final = (
    *(_train, _method, _objective, _evaluation, _sequence, _images, _devices, _engine, _script),
    *(_time, _length, _warmup, _schedule_arguments, _kept),
)


# ── as a mapping ─────────────────────────────────────────────────────────────────────────────────


def tree(fields: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Fields by path as one nested mapping."""
    found: dict[str, Any] = {}
    for path, value in sorted(fields.items(), key=lambda each: len(each[0])):
        inner = found
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = dict(value) if isinstance(value, Mapping) else value
    return found


def short(data: Mapping[str, Any]) -> dict[str, Any]:
    """A spec with the short forms of its fields: `method: lora`, `warmup: 100`."""
    found = dict(data)
    for name in ("method", "objective"):
        found.update(_by_name(name, found.get(name)))
    if (found.get("precision") or {}).keys() == {"compute"}:
        found["precision"] = found["precision"]["compute"]
    if "train" in found:
        found["train"] = _short_train(found["train"])
    return found


def _by_name(field: str, value: Any) -> dict[str, Any]:
    """A choice without options as its name."""
    if isinstance(value, Mapping) and list(value.values()) == [{}]:
        return {field: next(iter(value))}
    return {}


def _short_train(train: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(train)
    optimizer, warmup = found.get("optimizer", {}), found.get("warmup", {})
    if optimizer.keys() == {"name"}:
        found["optimizer"] = optimizer["name"]
    if "steps" in warmup or isinstance(warmup.get("share"), float):
        found["warmup"] = next(iter(warmup.values()))
    return found
