"""Rows of TrainingArguments for FSDP: `fsdp` and `fsdp_config`, which changed twice.

Until 5.9 `fsdp` is words (`full_shard auto_wrap offload`), from 5.10 a switch, and all else is in
`fsdp_config`. Until 4.57 version 2 has no key, but the variables of `accelerate launch` can request
it; from 5.4 version 1 shards fully whatever the file sets, unless these variables set more.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json
from tunec.targets.accelerate.fsdp import (
    PREFETCH,
    SHARDING,
    WRAP,
    on_first,
    on_second,
    true,
    worded,
)
from tunec.targets.huggingface.fsdp_row import (
    CONFIG,
    PLUGIN,
    PROCESS,
    SECOND,
    SWITCH,
    Found,
    not_by_accelerate,
    row,
    version_of,
)
from tunec.targets.rows import on_fsdp

# ── the engine, its version and its sharding ─────────────────────────────────────────────────────


def _strategy(words: list[str]) -> str | None:
    found = (worded(SHARDING, word) for word in words)
    return next((each for each in found if each is not None), None)


def _resharding(found: Found, words: list[str]) -> Mapping[str, Any]:
    """The sharding of FSDP 2, by whether it reshards after a layer's forward pass."""
    usual = _strategy(words) != "grad_op"
    whole = true(found.get("reshard_after_forward", usual))
    return {"fsdp.sharding": "full" if whole else "grad_op"}


def _engine(*, switch: bool, **era: Any) -> Entry:
    return row(
        (),
        ("parallel.engine",),
        lambda _: {},
        lambda _words, _found: {"parallel.engine": "fsdp"},
        switch=switch,
        **era,
    )


def _versioned(*, switch: bool, **era: Any) -> tuple[Entry, Entry]:
    """Rows for the version, and for the sharding of version 2."""

    def read_second(words: list[str], found: Found) -> Mapping[str, Any]:
        return _resharding(found, words) if version_of(found, switch=switch) == 2 else {}

    return (
        row(
            ("version",),
            ("fsdp.version",),
            lambda plan: {"version": plan.fsdp.version},
            lambda _, found: {"fsdp.version": version_of(found, switch=switch)},
            switch=switch,
            source=PROCESS,
            **era,
        ),
        row(
            ("version", "reshard_after_forward"),
            ("fsdp.sharding",),
            lambda plan: {"version": 2, "reshard_after_forward": plan.fsdp.sharding == "full"},
            read_second,
            switch=switch,
            when=on_second,
            source=PROCESS,
            **era,
        ),
    )


def _first_by_words(words: list[str], found: Found) -> Mapping[str, Any]:
    if version_of(found, switch=False) == 2:
        return {}
    return {"fsdp.sharding": _strategy(words) or "full"}


def _first_in_full(*, switch: bool, **era: Any) -> Entry:
    """The row for releases whose sharding strategy accelerate replaces by its own default."""
    return row(
        ("version",),
        ("fsdp.sharding",),
        lambda _: {"version": 1},
        lambda _, found: {"fsdp.sharding": "full"} if version_of(found, switch=switch) == 1 else {},
        switch=switch,
        when=not_by_accelerate(on_first),
        source=f"{PROCESS}: from 5.4 the strategy is handed on as reshard_after_forward, which "
        f"{PLUGIN} reads after its own default of sharding_strategy",
        **era,
    )


_ENGINE: Final = (
    _engine(switch=False, until=SWITCH),
    _engine(switch=True, since=SWITCH),
    row(
        (),
        ("fsdp.version",),
        lambda _: {},
        lambda _words, _found: {"fsdp.version": 1},
        switch=False,
        until=SECOND,
        when=not_by_accelerate(on_fsdp),
    ),
    *_versioned(switch=False, since=SECOND, until=SWITCH),
    *_versioned(switch=True, since=SWITCH),
    row(
        ("version",),
        ("fsdp.sharding",),
        lambda _: {},
        _first_by_words,
        switch=False,
        until="5.4",
        when=on_first,
    ),
    _first_in_full(switch=False, since="5.4", until=SWITCH),
    _first_in_full(switch=True, since=SWITCH),
)


# ── units and offload ────────────────────────────────────────────────────────────────────────────


def _unit_keys(plan: Plan) -> dict[str, Json]:
    keys: dict[str, Json] = {}
    if plan.fsdp.wrap == "size":
        keys["min_num_params"] = plan.fsdp.min_parameters
    if plan.fsdp.wrap_classes:
        keys["transformer_layer_cls_to_wrap"] = list(plan.fsdp.wrap_classes)
    return keys


def _units(wrap: str | None, found: Found) -> Mapping[str, Any]:
    names = found.get("transformer_layer_cls_to_wrap", ())
    names = (names,) if isinstance(names, str) else tuple(names)
    least = found.get("min_num_params", 0)
    return {
        "fsdp.wrap": wrap,
        "fsdp.wrap_classes": names if wrap == "transformer" else (),
        "fsdp.min_parameters": least if wrap == "size" else 0,
    }


def _read_units_of_words(words: list[str], found: Found) -> Mapping[str, Any]:
    if "auto_wrap" not in words:
        return _units("none", found)
    return _units("size" if found.get("min_num_params", 0) > 0 else "transformer", found)


def _write_units(plan: Plan) -> Mapping[str, Json]:
    return {"auto_wrap_policy": WRAP[plan.fsdp.wrap], **_unit_keys(plan)}


def _read_units(_: list[str], found: Found) -> Mapping[str, Any]:
    return _units(worded(WRAP, found.get("auto_wrap_policy", WRAP["transformer"])), found)


_WRAP_SLOTS: Final = ("fsdp.wrap", "fsdp.wrap_classes", "fsdp.min_parameters")
_WRAP_KEYS: Final = ("min_num_params", "transformer_layer_cls_to_wrap")
_UNITS: Final = (
    row(_WRAP_KEYS, _WRAP_SLOTS, _unit_keys, _read_units_of_words, switch=False, until=SWITCH),
    row(
        ("auto_wrap_policy", *_WRAP_KEYS),
        _WRAP_SLOTS,
        _write_units,
        _read_units,
        switch=True,
        since=SWITCH,
        source=PROCESS,
    ),
    row(
        (),
        ("fsdp.offload_params",),
        lambda _: {},
        lambda words, _: {"fsdp.offload_params": "offload" in words},
        switch=False,
        until=SWITCH,
    ),
    row(
        ("cpu_offload",),
        ("fsdp.offload_params",),
        lambda plan: {"cpu_offload": plan.fsdp.offload_params},
        lambda words, found: {
            "fsdp.offload_params": true(found.get("cpu_offload", "offload" in words))
        },
        switch=True,
        since=SWITCH,
        source=PROCESS,
    ),
)


# ── prefetching, loading, checkpoints ────────────────────────────────────────────────────────────


def _flag(value: bool) -> str:
    """A boolean as a word, because 4.40 copies these values into variables unchanged."""
    return "true" if value else "false"


def _of_first(
    key: str, slot: str, write: Callable[[Any], Json], read: Callable[[Json], Any], usual: Json
) -> tuple[Entry, Entry]:
    """A row for a key of version 1, and one for what version 2 always does."""

    def rows(*, switch: bool, **era: Any) -> Entry:
        def taken(_: list[str], found: Found) -> Mapping[str, Any]:
            if version_of(found, switch=switch) == 2:
                return {}
            return {slot: read(found.get(key, usual))}

        return row(
            ("version", key),
            (slot,),
            lambda plan: {**({"version": 1} if switch else {}), key: write(plan[slot])},
            taken,
            switch=switch,
            when=on_first,
            **era,
        )

    return rows(switch=False, until=SWITCH), rows(switch=True, since=SWITCH)


def _second_does(slot: str, value: Any) -> tuple[Entry, Entry]:
    def rows(*, switch: bool, **era: Any) -> Entry:
        return row(
            ("version",),
            (slot,),
            lambda _: {"version": 2},
            lambda _, found: {slot: value} if version_of(found, switch=switch) == 2 else {},
            switch=switch,
            when=on_second,
            source=PLUGIN,
            **era,
        )

    return rows(switch=False, since=SECOND, until=SWITCH), rows(switch=True, since=SWITCH)


def _loading(*, switch: bool, **era: Any) -> Entry:
    key = "cpu_ram_efficient_loading"
    return row(
        (key,),
        ("fsdp.efficient_loading",),
        lambda plan: {key: _flag(plan.fsdp.efficient_loading)},
        lambda _, found: {"fsdp.efficient_loading": true(found.get(key, False))},
        switch=switch,
        **era,
    )


def _unsaid_state_dict(version: int, value: str, **era: Any) -> Entry:
    slot = "fsdp.state_dict"
    return row(
        ("version",),
        (slot,),
        lambda _: {"version": 2} if version == 2 else {},
        lambda _, found: {slot: value} if version_of(found, switch=False) == version else {},
        switch=False,
        when=not_by_accelerate(on_first if version == 1 else on_second),
        source=f"{PLUGIN} `set_state_dict_type`",
        **era,
    )


def _read_state_dict(_: list[str], found: Found) -> Mapping[str, Any]:
    word = str(found.get("state_dict_type", "FULL_STATE_DICT")).upper()
    return {"fsdp.state_dict": {"FULL_STATE_DICT": "full", "SHARDED_STATE_DICT": "sharded"}[word]}


_RUN: Final = (
    *_of_first(
        "backward_prefetch",
        "fsdp.backward_prefetch",
        lambda value: PREFETCH[value].lower(),
        lambda word: worded(PREFETCH, word),
        "no_prefetch",
    ),
    *_of_first("forward_prefetch", "fsdp.forward_prefetch", _flag, true, False),
    *_of_first("use_orig_params", "fsdp.use_orig_params", _flag, true, True),
    *_second_does("fsdp.backward_prefetch", "pre"),
    *_second_does("fsdp.forward_prefetch", value=False),
    *_second_does("fsdp.use_orig_params", value=True),
    row(
        (),
        ("fsdp.efficient_loading",),
        lambda _: {},
        lambda _words, _found: {"fsdp.efficient_loading": False},
        switch=False,
        until="4.41",
        when=not_by_accelerate(on_fsdp),
    ),
    _loading(switch=False, since="4.41", until=SWITCH),
    _loading(switch=True, since=SWITCH),
    _unsaid_state_dict(1, "full", until=SWITCH),
    _unsaid_state_dict(2, "sharded", since=SECOND, until=SWITCH),
    row(
        ("state_dict_type",),
        ("fsdp.state_dict",),
        lambda plan: {"state_dict_type": f"{plan.fsdp.state_dict}_STATE_DICT".upper()},
        _read_state_dict,
        switch=True,
        since=SWITCH,
        source=PROCESS,
    ),
)


# ── recomputation ────────────────────────────────────────────────────────────────────────────────

_RECOMPUTES: Final = "activation_checkpointing"


def recomputes_by_fsdp(plan: Plan) -> bool:
    """Whether FSDP makes the layers recompute, so that the model must not do so."""
    return plan.fsdp.checkpointing


def _leaves_it(plan: Plan) -> bool:
    return on_fsdp(plan) and not plan.fsdp.checkpointing


def _read_checkpointing(_: list[str], found: Found) -> Mapping[str, Any]:
    if not true(found.get(_RECOMPUTES, False)):
        return {"fsdp.checkpointing": False}
    return {
        "fsdp.checkpointing": True,
        "activation_checkpointing.mode": "layer",
        "activation_checkpointing.reentrant": False,
    }


def _checkpointing(slots: tuple[str, ...], *, switch: bool, **era: Any) -> Entry:
    return row(
        (_RECOMPUTES,),
        slots,
        lambda plan: {_RECOMPUTES: plan.fsdp.checkpointing},
        _read_checkpointing,
        switch=switch,
        source="transformers 4.40.2 to 5.9.0 trainer.py `create_accelerator_and_postprocess`, "
        "then training_args.py `_process_fsdp_args`",
        **era,
    )


_MODE: Final = ("activation_checkpointing.mode", "activation_checkpointing.reentrant")
_CHECKPOINTING: Final = tuple(
    _checkpointing(slots, switch=switch, when=when, **era)
    for switch, era in ((False, {"until": SWITCH}), (True, {"since": SWITCH}))
    for slots, when in (
        (("fsdp.checkpointing", *_MODE), recomputes_by_fsdp),
        (("fsdp.checkpointing",), _leaves_it),
    )
)

FSDP: Final = (*_ENGINE, *_UNITS, *_RUN, *_CHECKPOINTING)
RECOMPUTES_KEY: Final = f"{CONFIG}.{_RECOMPUTES}"
