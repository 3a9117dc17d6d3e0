"""Rows for FSDP 1 and 2 in accelerate.yaml: the section `fsdp_config`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Documents, Entry, Found, Json, constant
from tunec.schemas.frozen import replace
from tunec.targets.accelerate.packages import PACKAGE
from tunec.targets.rows import on_fsdp

NAME: Final = "accelerate.yaml"
WORD: Final = "FSDP"
_KIND: Final = "distributed_type"
_SECTION: Final = "fsdp_config.fsdp_"
_VERSION: Final = f"{_SECTION}version"
_PLUGIN: Final = (
    "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `FullyShardedDataParallelPlugin`, told by "
    "variables that utils/launch.py makes of the section"
)
_SECOND: Final = "1.6"
"""The first release with FSDP 2."""

SHARDING: Final[Mapping[str, str]] = {
    "full": "FULL_SHARD",
    "grad_op": "SHARD_GRAD_OP",
    "none": "NO_SHARD",
    "hybrid": "HYBRID_SHARD",
}
"""torch's names of sharding strategies, in the order of their numbers (accelerate
utils/constants.py `FSDP_SHARDING_STRATEGY`)."""
WRAP: Final[Mapping[str, str]] = {
    "transformer": "TRANSFORMER_BASED_WRAP",
    "size": "SIZE_BASED_WRAP",
    "none": "NO_WRAP",
}
PREFETCH: Final[Mapping[str, str]] = {
    "pre": "BACKWARD_PRE",
    "post": "BACKWARD_POST",
    "none": "NO_PREFETCH",
}
STATE_DICT: Final[Mapping[str, str]] = {"full": "FULL_STATE_DICT", "sharded": "SHARDED_STATE_DICT"}


def on_first(plan: Plan) -> bool:
    """Whether the plan uses FSDP 1."""
    return plan.fsdp.version == 1


def on_second(plan: Plan) -> bool:
    """Whether the plan uses FSDP 2."""
    return plan.fsdp.version == 2


def true(value: Json) -> bool:
    """A boolean as `str_to_bool` of accelerate and transformers reads it."""
    return str(value).lower() in ("true", "1", "yes", "y", "t", "on")


def worded(words: Mapping[str, str], value: Json) -> str | None:
    """The slot's word for a consumer's word in any case; None if there is none."""
    return next((ours for ours, theirs in words.items() if theirs == str(value).upper()), None)


def sharding_of(value: Json) -> str | None:
    """The sharding for a name or a number of `ShardingStrategy`."""
    if str(value).isdigit():
        names = dict(enumerate(SHARDING, 1))
        return names.get(int(str(value)))
    return worded(SHARDING, value)


def _row(
    keys: tuple[str, ...],
    slots: tuple[str, ...],
    write: Callable[[Plan], Mapping[str, Json]],
    read: Callable[[Mapping[str, Json]], Mapping[str, Any]],
    *,
    since: str | None = None,
    until: str | None = None,
    when: Callable[[Plan], bool] = on_fsdp,
    source: str = _PLUGIN,
) -> Entry:
    """A row of the section, which has no effect if another engine is used."""
    named = tuple(f"{_SECTION}{key}" for key in keys)

    def put(plan: Plan) -> Mapping[str, Json]:
        return {_KIND: WORD, **{f"{_SECTION}{key}": value for key, value in write(plan).items()}}

    def take(found: Mapping[str, Json]) -> Mapping[str, Any]:
        if found.get(_KIND) != WORD:
            return {}
        inside = {
            key.removeprefix(_SECTION): value
            for key, value in found.items()
            if key != _KIND and value is not None
        }
        return {slot: value for slot, value in read(inside).items() if value is not None}

    return Entry(
        (_KIND, *named), slots, put, take, source, since, until, when=when, package=PACKAGE
    )


def _same(
    key: str, name: str, kind: Callable[[Json], Any], when: Callable[[Plan], bool] = on_fsdp
) -> Entry:
    slot = f"fsdp.{name}"
    return _row(
        (key,),
        (slot,),
        lambda plan: {key: plan[slot]},
        lambda found: {slot: kind(found[key])} if key in found else {},
        when=when,
    )


def _worded(key: str, name: str, words: Mapping[str, str]) -> Entry:
    slot = f"fsdp.{name}"
    return _row(
        (key,),
        (slot,),
        lambda plan: {key: words[plan[slot]]},
        lambda found: {slot: worded(words, found[key])} if key in found else {},
        when=on_fsdp,
    )


def _is_second(found: Mapping[str, Json]) -> bool:
    return str(found.get("version", 1)) == "2"


# ── version and sharding ─────────────────────────────────────────────────────────────────────────


def _write_sharding(plan: Plan) -> Mapping[str, Json]:
    if on_second(plan):
        return {"version": 2, "reshard_after_forward": plan.fsdp.sharding == "full"}
    return {"sharding_strategy": SHARDING[plan.fsdp.sharding]}


def _read_sharding(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The sharding: version 1 ignores `reshard_after_forward`, version 2 `sharding_strategy`."""
    if _is_second(found):
        whole = true(found.get("reshard_after_forward", True))
        return {"fsdp.sharding": "full" if whole else "grad_op"}
    return {"fsdp.sharding": sharding_of(found.get("sharding_strategy", "FULL_SHARD"))}


_KEYS: Final = ("version", "sharding_strategy", "reshard_after_forward")
_SHARDING: Final = (
    _row(
        ("version",),
        ("fsdp.version",),
        lambda plan: {"version": plan.fsdp.version},
        lambda found: {"fsdp.version": 2 if _is_second(found) else 1},
        since=_SECOND,
    ),
    _row((), ("fsdp.version",), lambda _: {}, lambda _: {"fsdp.version": 1}, until=_SECOND),
    _row(_KEYS, ("fsdp.sharding",), _write_sharding, _read_sharding, since=_SECOND),
    _row(
        ("sharding_strategy",),
        ("fsdp.sharding",),
        lambda plan: {"sharding_strategy": SHARDING[plan.fsdp.sharding]},
        _read_sharding,
        until=_SECOND,
    ),
)


# ── units, prefetching, checkpoints ──────────────────────────────────────────────────────────────


def _write_wrap(plan: Plan) -> Mapping[str, Json]:
    fsdp = plan.fsdp
    keys: dict[str, Json] = {"auto_wrap_policy": WRAP[fsdp.wrap]}
    if fsdp.wrap_classes:
        keys["transformer_layer_cls_to_wrap"] = ",".join(fsdp.wrap_classes)
    if fsdp.wrap == "size":
        keys["min_num_params"] = fsdp.min_parameters
    return keys


def _read_wrap(found: Mapping[str, Json]) -> Mapping[str, Any]:
    wrap = worded(WRAP, found.get("auto_wrap_policy", "NO_WRAP"))
    names = str(found.get("transformer_layer_cls_to_wrap", "")) if wrap == "transformer" else ""
    least = int(float(str(found.get("min_num_params", 1e8)))) if wrap == "size" else 0
    return {
        "fsdp.wrap": wrap,
        "fsdp.wrap_classes": tuple(filter(None, (name.strip() for name in names.split(",")))),
        "fsdp.min_parameters": least,
    }


def _second_does(slot: str, value: Any) -> Entry:
    """A row for a value that FSDP 2 always uses, whatever the section sets."""

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        return {slot: value} if _is_second(found) else {}

    return _row(
        ("version",), (slot,), lambda _: {"version": 2}, read, since=_SECOND, when=on_second
    )


def _only_first(entry: Entry) -> Entry:
    """A row for a key that version 2 ignores."""

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        if str(found.get(_VERSION, 1)) == "2":
            return {}
        return entry.read(found)

    return replace(entry, keys=(*entry.keys, _VERSION), read=read, when=on_first)


def _second_state_dict(**era: str) -> Entry:
    """The state dict of FSDP 2. 1.6 refuses FULL_STATE_DICT with it (`set_state_dict_type`)."""
    kept = {"sharded"} if "until" in era else set(STATE_DICT)

    def write(plan: Plan) -> Mapping[str, Json]:
        kind = plan.fsdp.state_dict
        return {"version": 2, **({"state_dict_type": STATE_DICT[kind]} if kind in kept else {})}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        if not _is_second(found):
            return {}
        return {
            "fsdp.state_dict": worded(
                STATE_DICT, found.get("state_dict_type", STATE_DICT["sharded"])
            )
        }

    return _row(
        ("version", "state_dict_type"),
        ("fsdp.state_dict",),
        write,
        read,
        since=era.get("since", _SECOND),
        until=era.get("until"),
        when=on_second,
    )


_UNITS: Final = (
    _row(
        ("auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params"),
        ("fsdp.wrap", "fsdp.wrap_classes", "fsdp.min_parameters"),
        _write_wrap,
        _read_wrap,
    ),
    _same("offload_params", "offload_params", true),
    _only_first(_worded("state_dict_type", "state_dict", STATE_DICT)),
    _second_state_dict(until="1.7"),
    _second_state_dict(since="1.7"),
    _same("cpu_ram_efficient_loading", "efficient_loading", true),
    _only_first(_worded("backward_prefetch", "backward_prefetch", PREFETCH)),
    _only_first(_same("forward_prefetch", "forward_prefetch", true)),
    _only_first(_same("use_orig_params", "use_orig_params", true)),
    constant(
        f"{_SECTION}sync_module_states",
        True,
        "accelerate utils/launch.py `prepare_multi_gpu_env`: loading on one rank needs it, and "
        "adapters begin alike on all ranks by it",
        when=on_first,
        package=PACKAGE,
    ),
    _second_does("fsdp.backward_prefetch", "pre"),
    _second_does("fsdp.forward_prefetch", value=False),
    _second_does("fsdp.use_orig_params", value=True),
)


# ── recomputation ────────────────────────────────────────────────────────────────────────────────


def _recomputes(plan: Plan) -> bool:
    return plan.fsdp.checkpointing


def _leaves(plan: Plan) -> bool:
    return on_fsdp(plan) and not plan.fsdp.checkpointing


def _read_checkpointing(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if "activation_checkpointing" not in found:
        return {}
    if not true(found["activation_checkpointing"]):
        return {"fsdp.checkpointing": False}
    return {
        "fsdp.checkpointing": True,
        "activation_checkpointing.mode": "layer",
        "activation_checkpointing.reentrant": False,
    }


def _checkpointing(slots: tuple[str, ...], when: Callable[[Plan], bool]) -> Entry:
    return _row(
        ("activation_checkpointing",),
        slots,
        lambda plan: {"activation_checkpointing": plan.fsdp.checkpointing},
        _read_checkpointing,
        since="0.31",
        when=when,
    )


_MODE: Final = ("activation_checkpointing.mode", "activation_checkpointing.reentrant")
_CHECKPOINTING: Final = (
    _checkpointing(("fsdp.checkpointing", *_MODE), _recomputes),
    _checkpointing(("fsdp.checkpointing",), _leaves),
    _row(
        (),
        ("fsdp.checkpointing",),
        lambda _: {},
        lambda _: {"fsdp.checkpointing": False},
        until="0.31",
    ),
)

FSDP: Final = (*_SHARDING, *_UNITS, *_CHECKPOINTING)

_ABSENT: Final[Mapping[str, tuple[str, Any]]] = {
    "offload_params": ("fsdp.offload_params", False),
    "cpu_ram_efficient_loading": ("fsdp.efficient_loading", True),
    "activation_checkpointing": ("fsdp.checkpointing", False),
}
_ABSENT_FIRST: Final[Mapping[str, tuple[str, Any]]] = {
    "state_dict_type": ("fsdp.state_dict", "full"),
    "backward_prefetch": ("fsdp.backward_prefetch", "none"),
    "forward_prefetch": ("fsdp.forward_prefetch", False),
    "use_orig_params": ("fsdp.use_orig_params", True),
}
"""Defaults of the launcher and the plugin for absent keys, as reported by 15 releases
(schemas/json/accelerate/defaults.json)."""


def fsdp_defaults(documents: Documents) -> Iterator[Definition]:
    """Accelerate's defaults for absent keys of the section, in a run by FSDP."""
    found: Mapping[str, Found] = documents.get(NAME, {})
    kind, version = found.get(_KIND), found.get(_VERSION)
    if kind is None or kind.value != WORD:
        return
    second = version is not None and str(version.value) == "2"
    table = _ABSENT if second else {**_ABSENT, **_ABSENT_FIRST}
    for name, (slot, value) in table.items():
        if _SECTION + name not in found:
            reason = f"{_SECTION}{name} is absent: what {PACKAGE} then does"
            yield Definition(slot, value, Rank.CONSUMER, PACKAGE, reason)
