"""accelerate.yaml: the settings of `accelerate launch`."""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.consumers.moved_keys import gone, one_of
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import (
    Dialect,
    Entry,
    File,
    Json,
    constant,
    derived,
    in_no_plan,
    on_deepspeed,
)
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.targets.accelerate.deepspeed import ALONE, INLINE
from tunec.targets.accelerate.fsdp import FSDP, WORD
from tunec.targets.accelerate.packages import PACKAGE
from tunec.targets.accelerate.ranks import SEQUENCES, processes, uses_every_device
from tunec.targets.rows import without_deepspeed

_CONFIG = "accelerate 0.30.1 to 1.15.0 commands/config/config_args.py `ClusterConfig`"


def by_accelerate(plan: Plan) -> bool:
    """Whether accelerate starts the processes."""
    return plan.launch.launcher == "accelerate"


# ── which engine, on how many processes ──────────────────────────────────────────────────────────

_ENGINES: Final = {"none": "NO", "ddp": "MULTI_GPU", "deepspeed": "DEEPSPEED", "fsdp": WORD}


def _write_engine(plan: Plan) -> Mapping[str, Any]:
    return {"distributed_type": _ENGINES[plan.parallel.engine]}


def _read_engine(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The engine of `distributed_type`. YAML 1.1 reads an unquoted NO as false: one process."""
    word = "NO" if found["distributed_type"] is False else found["distributed_type"]
    engines = [engine for engine, known in _ENGINES.items() if known == word]
    return {"parallel.engine": engines[0]} if engines else {}


def _write_processes(plan: Plan) -> Mapping[str, Any]:
    counted = processes(plan)
    if counted is None:
        return {}
    return {"num_machines": counted[0], "num_processes": counted[0] * counted[1]}


def _read_world(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"parallel.world": found["num_processes"]} if "num_processes" in found else {}


def _read_devices(found: Mapping[str, Any]) -> Mapping[str, Any]:
    nodes = found.get("num_machines", 1)
    each = divmod(found.get("num_processes", nodes), nodes)
    per_node = {} if each[1] else {"devices.per_node": each[0]}
    return {"devices.nodes": nodes, **per_node}


def _read_visible(found: Mapping[str, Any]) -> Mapping[str, Any]:
    chosen = found["gpu_ids"]
    return {"devices.visible": () if chosen in ("all", None) else tuple(chosen.split(","))}


_PROCESSES = (
    Entry(
        ("distributed_type",),
        ("parallel.engine",),
        _write_engine,
        _read_engine,
        "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DistributedType`",
        package=PACKAGE,
    ),
    Entry(
        ("num_machines", "num_processes"),
        ("parallel.world",),
        _write_processes,
        _read_world,
        _CONFIG,
        package=PACKAGE,
    ),
    Entry(
        ("num_machines", "num_processes"),
        ("devices.nodes", "devices.per_node"),
        _write_processes,
        _read_devices,
        _CONFIG,
        when=uses_every_device,
        package=PACKAGE,
    ),
    Entry(
        ("gpu_ids",),
        ("devices.visible",),
        lambda _: {},
        _read_visible,
        "accelerate 0.30.1 to 1.15.0 utils/launch.py: CUDA_VISIBLE_DEVICES, unless it is all",
        when=in_no_plan,
        package=PACKAGE,
    ),
)


# ── mixed precision ──────────────────────────────────────────────────────────────────────────────


def _write_mixed(plan: Plan) -> Mapping[str, Any]:
    return {"mixed_precision": plan.precision.compute if plan.states.autocast else "no"}


def _read_mixed(found: Mapping[str, Any]) -> Mapping[str, Any]:
    word = found.get("mixed_precision", "no")
    if word in ("no", False):  # YAML 1.1 reads an unquoted no as false
        return {"states.autocast": False} if "mixed_precision" in found else {}
    casts = found.get("distributed_type") != _ENGINES["deepspeed"]
    return {"precision.compute": word, "states.autocast": casts}


def _casts(plan: Plan) -> bool:
    return without_deepspeed(plan) and plan.states.autocast


def _casts_nothing(plan: Plan) -> bool:
    return without_deepspeed(plan) and not plan.states.autocast


_MIXED = "accelerate 0.30.1 to 1.15.0 utils/launch.py: ACCELERATE_MIXED_PRECISION, which the HF "
_MIXED += "Trainer takes where its own flags are off"


def _mixed(slots: tuple[str, ...], when: Any) -> Entry:
    return Entry(
        ("mixed_precision", "distributed_type"),
        slots,
        _write_mixed,
        _read_mixed,
        f"{_MIXED}; DeepSpeed casts the module instead",
        when=when,
        package=PACKAGE,
    )


_PRECISION = (
    _mixed(("precision.compute", "states.autocast"), _casts),
    _mixed(("states.autocast",), _casts_nothing),
)


# ── what is the same in every plan ───────────────────────────────────────────────────────────────

_SETTINGS = (
    constant("machine_rank", 0, f"{_CONFIG}; on several nodes a flag", package=PACKAGE),
    constant("rdzv_backend", "static", _CONFIG, package=PACKAGE),
    constant("same_network", True, _CONFIG, package=PACKAGE),
    constant("main_training_function", "main", _CONFIG, package=PACKAGE),
    constant("use_cpu", False, _CONFIG, package=PACKAGE),
    constant("debug", False, _CONFIG, package=PACKAGE),
)

_NAMED = constant(
    "deepspeed_config.deepspeed_config_file",
    "ds_config.json",
    "accelerate utils/dataclasses.py `DeepSpeedPlugin`: beside it no other key of "
    "ds_config.json may stand here",
    when=on_deepspeed,
    package=PACKAGE,
)
_DEEPSPEED = (
    constant(
        "deepspeed_config.deepspeed_multinode_launcher",
        "standard",
        "accelerate utils/launch.py: torchrun on each node instead of pdsh",
        when=on_deepspeed,
        package=PACKAGE,
    ),
    derived(
        "deepspeed_config.zero3_init_flag",
        lambda plan: plan.zero.stage == 3 and plan.model.kind != "diffusion",
        "accelerate utils/dataclasses.py `DeepSpeedPlugin`: frozen parts of a pipeline would be "
        "left as empty shards",
        when=on_deepspeed,
        package=PACKAGE,
    ),
)

_ENTRIES = (
    constant("compute_environment", "LOCAL_MACHINE", _CONFIG, package=PACKAGE),
    *_PROCESSES,
    *_SETTINGS,
    *_PRECISION,
    *_DEEPSPEED,
    *FSDP,
    *SEQUENCES,
)


# ── the file ─────────────────────────────────────────────────────────────────────────────────────


def _is_accelerate(document: Json) -> bool:
    if not isinstance(document, dict):
        return False
    return "distributed_type" in document or "compute_environment" in document


@cached()
def _known() -> tuple[Version, ...]:
    """The releases with a schema, oldest first: those in which it changed, and the last."""
    table = files("tunec.schemas").joinpath("json", "accelerate", "defaults.json")
    return tuple(sorted(map(Version, json.loads(table.read_text("utf-8")))))


def schema(dialect: Dialect) -> str | None:
    """The schema file for a release: that of the newest known release that is not newer."""
    older = [known for known in _known() if known <= dialect[PACKAGE]]
    return f"accelerate/{older[-1]}.json" if older else None


_OFF: Final = one_of("no", False, [], "")
_LEAVES: Final = tuple(
    gone(key, _CONFIG, "it is for TPUs alone", changes_nothing=_OFF)
    for key in ("downcast_bf16", "tpu_env", "tpu_use_cluster", "tpu_use_sudo")
)
_ALONE: Final = File(
    name="accelerate.yaml",
    format="yaml",
    entries=(*_ENTRIES, *ALONE),
    recognise=_is_accelerate,
    schema=schema,
    when=by_accelerate,
    leaves=_LEAVES,
)
ACCELERATE_CONFIG: Final = replace(
    _ALONE, entries=(*_ENTRIES, _NAMED, *INLINE), names=_NAMED.keys, alone=_ALONE
)
