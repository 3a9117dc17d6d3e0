"""accelerate.yaml: what `accelerate launch` is told."""

from collections.abc import Mapping
from typing import Any, Final

from packaging.specifiers import SpecifierSet

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, File, Json, Package, constant, derived, named
from tunec.targets.launch.processes import processes, uses_every_device

PACKAGE: Final = "accelerate"
ACCELERATE: Final = Package(
    SpecifierSet(">=0.30,<1.16"),
    (
        *("0.30.1", "0.31.0", "0.32.1", "0.33.0", "0.34.2", "1.0.1", "1.1.1", "1.2.1", "1.3.0"),
        *("1.4.0", "1.5.2", "1.6.0", "1.7.0", "1.8.1", "1.9.0", "1.10.1", "1.11.0", "1.12.0"),
        *("1.13.0", "1.14.0", "1.15.0"),
    ),
)
_CONFIG = "accelerate 0.30.1 to 1.15.0 commands/config/config_args.py `ClusterConfig`"


def by_accelerate(plan: Plan) -> bool:
    """Whether accelerate starts the processes."""
    return plan.launch.launcher == "accelerate"


def _on_deepspeed(plan: Plan) -> bool:
    return plan.parallel.engine == "deepspeed"


def _without_deepspeed(plan: Plan) -> bool:
    return not _on_deepspeed(plan)


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


def _write_mixed(plan: Plan) -> Mapping[str, Any]:
    return {"mixed_precision": plan.precision.compute if plan.states.autocast else "no"}


def _read_mixed(found: Mapping[str, Any]) -> Mapping[str, Any]:
    word = found["mixed_precision"]
    if word in ("no", False):  # YAML 1.1 reads an unquoted no as false
        return {"states.autocast": False}
    return {"precision.compute": word, "states.autocast": True}


def _casts(plan: Plan) -> bool:
    return _without_deepspeed(plan) and plan.states.autocast


def _casts_nothing(plan: Plan) -> bool:
    return _without_deepspeed(plan) and not plan.states.autocast


_MIXED = "accelerate 0.30.1 to 1.15.0 utils/launch.py: ACCELERATE_MIXED_PRECISION, which the HF "
_MIXED += "Trainer takes where its own flags are off"


def _mixed(slots: tuple[str, ...], when: Any) -> Entry:
    return Entry(
        ("mixed_precision",), slots, _write_mixed, _read_mixed, _MIXED, when=when, package=PACKAGE
    )


_ENTRIES = (
    constant("compute_environment", "LOCAL_MACHINE", _CONFIG, package=PACKAGE),
    named(
        "distributed_type",
        "parallel.engine",
        {"none": "NO", "ddp": "MULTI_GPU", "deepspeed": "DEEPSPEED"},
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
    constant("machine_rank", 0, f"{_CONFIG}; on several nodes a flag", package=PACKAGE),
    constant("rdzv_backend", "static", _CONFIG, package=PACKAGE),
    constant("same_network", True, _CONFIG, package=PACKAGE),
    constant("main_training_function", "main", _CONFIG, package=PACKAGE),
    constant("use_cpu", False, _CONFIG, package=PACKAGE),
    constant("debug", False, _CONFIG, package=PACKAGE),
    _mixed(("precision.compute", "states.autocast"), _casts),
    _mixed(("states.autocast",), _casts_nothing),
    constant(
        "deepspeed_config.deepspeed_config_file",
        "ds_config.json",
        "accelerate utils/dataclasses.py `DeepSpeedPlugin`: beside it no other key of "
        "ds_config.json may stand here",
        when=_on_deepspeed,
        package=PACKAGE,
    ),
    constant(
        "deepspeed_config.deepspeed_multinode_launcher",
        "standard",
        "accelerate utils/launch.py: torchrun on each node instead of pdsh",
        when=_on_deepspeed,
        package=PACKAGE,
    ),
    derived(
        "deepspeed_config.zero3_init_flag",
        lambda plan: plan.zero.stage == 3 and plan.model.kind != "diffusion",
        "accelerate utils/dataclasses.py `DeepSpeedPlugin`: frozen parts of a pipeline would be "
        "left as empty shards",
        when=_on_deepspeed,
        package=PACKAGE,
    ),
)


def _is_accelerate(document: Json) -> bool:
    if not isinstance(document, dict):
        return False
    return "distributed_type" in document or "compute_environment" in document


ACCELERATE_CONFIG: Final = File(
    name="accelerate.yaml",
    format="yaml",
    entries=_ENTRIES,
    recognise=_is_accelerate,
    when=by_accelerate,
)
