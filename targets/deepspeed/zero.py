"""Rows of ds_config.json for ZeRO.

A key is only written at the stages at which it has an effect.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, constant, fixed
from tunec.targets.deepspeed.reader import (
    PACKAGE,
    offloads,
    shards,
    shards_parameters,
    shards_states,
    uses_nvme,
)

_ZERO = "deepspeed 0.14.5 to 0.19.8 runtime/zero/config.py `DeepSpeedZeroConfig`"
_OFFLOAD = "deepspeed 0.14.5 to 0.19.8 runtime/zero/offload_config.py"
_OPTIMIZER = "zero_optimization.offload_optimizer"
_PARAM = "zero_optimization.offload_param"


def _key(key: str, slot: str, default: Any, when: Callable[[Plan], bool]) -> Entry:
    """A row for a key that holds a slot, with a default that is the same in every release.

    A `stage3_` key is also read under its name without the prefix, which DeepSpeed accepts (0.14.5
    to 0.19.8 runtime/config_utils.py `populate_by_name`).
    """
    full, plain = (f"zero_optimization.{name}" for name in (key, key.removeprefix("stage3_")))
    path = f"zero.{slot}"
    return Entry(
        (full,) if full == plain else (full, plain),
        (path,),
        lambda plan: {full: plan[path]},
        lambda found: {path: found.get(full, found.get(plain))},
        _ZERO,
        absent=((ALWAYS, {path: default}),),
        when=when,
        package=PACKAGE,
    )


def _device(block: str, legacy: str, slot: str, when: Callable[[Plan], bool]) -> Entry:
    """A row for an offload device; the CPU flag of older files is read too."""
    device, flag = f"{block}.device", f"zero_optimization.{legacy}"

    def write(plan: Plan) -> Mapping[str, Any]:
        return {} if plan[slot] == "none" else {device: plan[slot]}

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        if device in found:
            return {slot: found[device]}
        return {slot: "cpu" if found[flag] is True else "none"}

    return Entry(
        (device, flag),
        (slot,),
        write,
        read,
        f"{_OFFLOAD}; {legacy}: {_ZERO}, deprecated",
        absent=((ALWAYS, {slot: "none"}),),
        when=when,
        package=PACKAGE,
    )


def _blocks(plan: Plan, name: str, value: Any, *, nvme_only: bool = False) -> dict[str, Any]:
    """A key and its value, for each offload block that the plan has."""
    places = {_OPTIMIZER: plan.zero.offload_optimizer, _PARAM: plan.zero.offload_param}
    wanted = ("nvme",) if nvme_only else ("cpu", "nvme")
    return {f"{block}.{name}": value for block, place in places.items() if place in wanted}


def _agreed(found: Mapping[str, Any], slot: str) -> Mapping[str, Any]:
    """The value on which both offload blocks agree; nothing if they differ."""
    values = list(found.values())
    return {slot: values[0]} if all(value == values[0] for value in values) else {}


_PIN = Entry(
    (f"{_OPTIMIZER}.pin_memory", f"{_PARAM}.pin_memory"),
    ("zero.pin_memory",),
    lambda plan: _blocks(plan, "pin_memory", plan.zero.pin_memory),
    lambda found: _agreed(found, "zero.pin_memory"),
    f"{_OFFLOAD}: default False to 0.19.4, True from 0.19.5",
    absent=((ALWAYS, {"zero.pin_memory": False}), ("0.19.5", {"zero.pin_memory": True})),
    when=offloads,
    package=PACKAGE,
)


def _write_path(plan: Plan) -> Mapping[str, Any]:
    path = plan.zero.nvme_path
    return {} if path is None else _blocks(plan, "nvme_path", path, nvme_only=True)


_PATH = Entry(
    (f"{_OPTIMIZER}.nvme_path", f"{_PARAM}.nvme_path"),
    ("zero.nvme_path",),
    _write_path,
    lambda found: _agreed(found, "zero.nvme_path"),
    _OFFLOAD,
    absent=((ALWAYS, {"zero.nvme_path": None}),),
    package=PACKAGE,
)


def _hpz(plan: Plan) -> Mapping[str, Any]:
    ranks = plan.zero.hpz_partition
    return {"zero_optimization.zero_hpz_partition_size": ranks} if ranks > 1 else {}


_LEAVES: Final = "zero_optimization.leaf_module.classes"
_LEAF_CLASSES: Final = "0.18.0"
"""The first release that reads leaf modules from the file; before it, a script marks them with
`deepspeed.utils.set_z3_leaf_modules`."""


_OWN_LEAVES: Final = (
    "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
    "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
)
"""DeepSpeed's default if the key is absent (`DEFAULT_LEAF_MODULE_CLASSES`)."""


def _leaves(plan: Plan) -> Mapping[str, Any]:
    named = plan.zero.leaf_modules
    return {} if named is None else {_LEAVES: list(named)}


def _named_leaves(found: Mapping[str, Any]) -> Mapping[str, Any]:
    named = tuple(found[_LEAVES])
    return {"zero.leaf_modules": None if named == _OWN_LEAVES else named}


_PORTIONS = (
    Entry(
        ("zero_optimization.zero_hpz_partition_size",),
        ("zero.hpz_partition",),
        _hpz,
        lambda found: {
            "zero.hpz_partition": max(found["zero_optimization.zero_hpz_partition_size"], 1)
        },
        _ZERO,
        absent=((ALWAYS, {"zero.hpz_partition": 1}),),
        when=shards_parameters,
        package=PACKAGE,
    ),
    Entry(
        (_LEAVES,),
        ("zero.leaf_modules",),
        _leaves,
        _named_leaves,
        "deepspeed 0.18.0 to 0.19.8 runtime/zero/leaf_module_config.py: absent, Mixtral's, "
        "Qwen2-MoE's and Qwen3-MoE's blocks",
        since=_LEAF_CLASSES,
        absent=((ALWAYS, {"zero.leaf_modules": None}),),
        when=shards_parameters,
        package=PACKAGE,
    ),
    fixed(
        "zero.leaf_modules",
        None,
        "deepspeed 0.14.5 to 0.17.6 runtime/zero/config.py has no such key",
        until=_LEAF_CLASSES,
        when=shards_parameters,
        package=PACKAGE,
    ),
)

ZERO = (
    _key("stage", "stage", 0, lambda _: True),
    _device(_OPTIMIZER, "cpu_offload", "zero.offload_optimizer", shards),
    _device(_PARAM, "cpu_offload_param", "zero.offload_param", shards_parameters),
    _PATH,
    _PIN,
    Entry(
        ("zero_optimization.overlap_comm",),
        ("zero.overlap_comm",),
        lambda plan: {"zero_optimization.overlap_comm": plan.zero.overlap_comm},
        lambda found: {"zero.overlap_comm": found["zero_optimization.overlap_comm"]},
        f"{_ZERO} `overlap_comm_valid`: absent, it is on at stage 3 only",
        when=shards,
        package=PACKAGE,
    ),
    _key("contiguous_gradients", "contiguous_gradients", True, shards),
    _key("reduce_scatter", "reduce_scatter", True, shards_states),
    constant(
        "zero_optimization.reduce_scatter",
        True,
        "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage3.py: off, gradients take another path",
        when=lambda plan: shards_parameters(plan) and plan.optimizer.name != "muon",
        package=PACKAGE,
    ),
    constant(
        "zero_optimization.reduce_scatter",
        False,
        "deepspeed 0.18.9 to 0.19.8 runtime/zero/stage3.py: Muon and reduce scatter cannot be used "
        "together, ValueError",
        when=lambda plan: shards_parameters(plan) and plan.optimizer.name == "muon",
        package=PACKAGE,
    ),
    _key("reduce_bucket_size", "reduce_bucket", 500_000_000, shards),
    _key("allgather_bucket_size", "allgather_bucket", 500_000_000, shards_states),
    _key("stage3_prefetch_bucket_size", "prefetch_bucket", 50_000_000, shards_parameters),
    _key("stage3_param_persistence_threshold", "persistence_threshold", 100_000, shards_parameters),
    _key("stage3_max_live_parameters", "max_live_parameters", 1_000_000_000, shards_parameters),
    _key("stage3_max_reuse_distance", "max_reuse_distance", 1_000_000_000, shards_parameters),
    _key("sub_group_size", "sub_group_size", 1_000_000_000, shards_parameters),
    _key("stage3_gather_16bit_weights_on_model_save", "gather_on_save", False, shards_parameters),
    *_PORTIONS,
)

_AIO_SOURCE = "deepspeed runtime/swap_tensor/constants.py, its own defaults"


def _aio(key: str, value: Any) -> Entry:
    return constant(f"aio.{key}", value, _AIO_SOURCE, when=uses_nvme, package=PACKAGE)


AIO = (
    _aio("block_size", 1_048_576),
    _aio("queue_depth", 8),
    _aio("single_submit", False),
    _aio("overlap_events", True),
)
"""Asynchronous file I/O under NVMe offload. The number of threads is left at DeepSpeed's default, 1
in every release: `thread_count` was renamed `intra_op_parallelism` in 0.16.4."""
