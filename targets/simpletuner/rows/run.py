"""Batch, processes, trackers and places, in config.json."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, constant, fixed, on_deepspeed, same
from tunec.targets.accelerate.processes import counted, leaves_devices_idle, uses_every_device
from tunec.targets.deepspeed import config
from tunec.targets.simpletuner.rows.precision import TRAINER

DATA_FILE: Final = "config/multidatabackend.json"

_TRACKERS: Final = ("tensorboard", "wandb")
"""Of our trackers, those that SimpleTuner knows."""
_LISTS: Final = "4.9.1"
"""First release in which `report_to` takes several (helpers/training/reporting.py)."""


def processes(world: int, nodes: int) -> Mapping[str, Any]:
    """The slots that a number of ranks and machines settles: every rank holds a whole model."""
    return {
        "parallel.world": world,
        "parallel.data": world,
        "devices.nodes": nodes,
        "devices.per_node": world // nodes,
    }


RANKS: Final = ("parallel.world", "parallel.data")
"""Of these slots, those that are said where devices are left idle."""


def _write_processes(plan: Plan) -> Mapping[str, Json]:
    keys = {"num_processes": plan.parallel.world, "num_machines": counted(plan)[0]}
    return {**keys, "deepspeed_config": config.NAME} if on_deepspeed(plan) else keys


def _read_processes(found: Mapping[str, Json]) -> Mapping[str, Any]:
    world, nodes = int(found.get("num_processes", 1)), int(found.get("num_machines", 1))
    return {**_engine(found, world), **processes(world, nodes)}


def _read_ranks(found: Mapping[str, Json]) -> Mapping[str, Any]:
    world = int(found.get("num_processes", 1))
    return {**_engine(found, world), **dict.fromkeys(RANKS, world)}


def _engine(found: Mapping[str, Json], world: int) -> Mapping[str, Any]:
    alone = "none" if world == 1 else "ddp"
    return {"parallel.engine": "deepspeed" if found.get("deepspeed_config") else alone}


def _write_tracker(plan: Plan) -> Mapping[str, Json]:
    known = [each for each in plan.runtime.report_to if each in _TRACKERS]
    return {"report_to": known[0] if known else "none"}


def _write_trackers(plan: Plan) -> Mapping[str, Json]:
    known = [each for each in plan.runtime.report_to if each in _TRACKERS]
    return {"report_to": ",".join(known) or "none"}


def _read_trackers(found: Mapping[str, Json]) -> Mapping[str, Any]:
    said = found["report_to"]
    words = said if isinstance(said, list) else str(said).split(",")
    trackers = tuple(word.strip() for word in words if word.strip() not in ("", "none"))
    return {"runtime.report_to": trackers}


def _trackers(write: Any, *, since: str | None = None, until: str | None = None) -> Entry:
    slots = ("runtime.report_to",)
    absent = ((ALWAYS, {"runtime.report_to": ()}),)
    source = "helpers/training/reporting.py normalize_report_to"
    return Entry(("report_to",), slots, write, _read_trackers, source, since, until, absent)


def _write_seed(plan: Plan) -> Mapping[str, Json]:
    """0 means the clock and -1 chance: neither is a seed."""
    return {"seed": plan.runtime.seed} if plan.runtime.seed not in (0, -1) else {}


def _read_seed(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {"runtime.seed": found["seed"]} if found["seed"] not in (0, -1) else {}


_LAUNCHED: Final = (
    "cli.py (3.1.6) and cli/train.py (4.10.1) run_training: from config.json these numbers do not "
    "reach the launcher, which config.env tells"
)

RUN: Final = (
    same("train_batch_size", "batch.micro", TRAINER, absent=((ALWAYS, 4),)),
    same("gradient_accumulation_steps", "batch.accumulation", TRAINER, absent=((ALWAYS, 1),)),
    Entry(
        ("num_processes", "num_machines", "deepspeed_config"),
        ("parallel.engine", *processes(1, 1)),
        _write_processes,
        _read_processes,
        _LAUNCHED,
        when=uses_every_device,
    ),
    Entry(
        ("num_processes", "num_machines", "deepspeed_config"),
        ("parallel.engine", *RANKS),
        _write_processes,
        _read_ranks,
        _LAUNCHED,
        when=leaves_devices_idle,
    ),
    fixed("parallel.tensor", 1, TRAINER),
    fixed("parallel.sequence", 1, f"{TRAINER}: context parallelism needs FSDP2"),
    _trackers(_write_tracker, until=_LISTS),
    _trackers(_write_trackers, since=_LISTS),
    Entry(
        ("seed",),
        ("runtime.seed",),
        _write_seed,
        _read_seed,
        "helpers/configuration/cmd_args.py parse_cmdline_args",
    ),
    same("output_dir", "runtime.output", TRAINER),
    constant("data_backend_config", DATA_FILE, TRAINER),
    constant("validation_disable", True, f"{TRAINER} init_validations"),
)
