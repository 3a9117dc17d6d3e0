"""Batch, processes, folders, and recomputed blocks, in config.json."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, constant, fixed, named, on_deepspeed, same
from tunec.schemas.frozen import replace
from tunec.targets.accelerate.ranks import counted, leaves_devices_idle, uses_every_device
from tunec.targets.deepspeed import config
from tunec.targets.simpletuner.rows import fsdp
from tunec.targets.simpletuner.rows.model import TRAINER

DATA_FILE: Final = "config/multidatabackend.json"

_TRACKERS: Final = ("tensorboard", "wandb")
"""Our trackers that SimpleTuner supports."""
_LISTS: Final = "4.9.1"
"""The first release in which `report_to` takes several trackers (helpers/training/reporting.py)."""


_CAPTIONS: Final = (
    "simpletuner 3.1.6 and 4.10.1 helpers/prompts.py `get_all_captions`: by default the names of "
    "the image files are the captions; `textfile` reads NAME.txt, and stops where it is missing"
)


def processes(world: int, nodes: int) -> Mapping[str, Any]:
    """The slots that follow from ranks and machines: every rank has a whole model."""
    return {
        "parallel.world": world,
        "parallel.data": world,
        "devices.nodes": nodes,
        "devices.per_node": world // nodes,
    }


RANKS: Final = ("parallel.world", "parallel.data")
"""The slots among them that are written if devices are idle."""


def _write_processes(plan: Plan) -> Mapping[str, Json]:
    keys = {"num_processes": plan.parallel.world, "num_machines": counted(plan)[0]}
    if on_deepspeed(plan):
        return {**keys, "deepspeed_config": config.NAME}
    return {**keys, **fsdp.flag(plan)}


def _read_processes(found: Mapping[str, Json]) -> Mapping[str, Any]:
    world, nodes = int(found.get("num_processes", 1)), int(found.get("num_machines", 1))
    engine = _engine(found, world)
    return engine if _leaves_ranks(found) else {**engine, **processes(world, nodes)}


def _read_ranks(found: Mapping[str, Json]) -> Mapping[str, Any]:
    world = int(found.get("num_processes", 1))
    engine = _engine(found, world)
    return engine if _leaves_ranks(found) else {**engine, **dict.fromkeys(RANKS, world)}


def _leaves_ranks(found: Mapping[str, Json]) -> bool:
    """Whether FSDP is turned on, and how many ranks shard the model is left to other files."""
    return fsdp.shards(found) and "num_processes" not in found


def _engine(found: Mapping[str, Json], world: int) -> Mapping[str, Any]:
    if fsdp.shards(found):
        return {"parallel.engine": "fsdp"}
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
    """Write the seed; 0 means the clock and -1 a random one."""
    return {"seed": plan.runtime.seed} if plan.runtime.seed not in (0, -1) else {}


def _read_seed(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {"runtime.seed": found["seed"]} if found["seed"] not in (0, -1) else {}


_LAUNCHED: Final = (
    "cli.py (3.1.6) and cli/train.py (4.10.1) run_training: from config.json these numbers do not "
    "reach the launcher, which reads config.env"
)

RUN: Final = (
    same("train_batch_size", "batch.micro", TRAINER, default=4),
    same("gradient_accumulation_steps", "batch.accumulation", TRAINER, default=1),
    Entry(
        ("num_processes", "num_machines", "deepspeed_config", fsdp.ENABLED),
        ("parallel.engine", *processes(1, 1)),
        _write_processes,
        _read_processes,
        _LAUNCHED,
        when=uses_every_device,
    ),
    Entry(
        ("num_processes", "num_machines", "deepspeed_config", fsdp.ENABLED),
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
    replace(constant("caption_strategy", "textfile", _CAPTIONS), yields=True),
)


_SEGMENTS: Final = ("activation_checkpointing.segment", "activation_checkpointing.gap")
_OFFLOAD: Final = "activation_checkpointing.offload"
_INTERVAL: Final = "gradient_checkpointing_interval"
_STRIDE: Final = "gradient_checkpointing_segment_stride"
_BACKEND: Final = "gradient_checkpointing_backend"
_PLACES: Final = {"torch": False, "unsloth": True}
"""Values that end in -ffn, from 4.5 on, recompute only the feed-forwards, which no slot
expresses."""


def _segments(segment: int, gap: int) -> Mapping[str, int]:
    return dict(zip(_SEGMENTS, (segment, gap), strict=True))


def _write_every(plan: Plan) -> Mapping[str, Json]:
    """Recompute one block of every `gap + 1`; segments of several blocks cannot be expressed."""
    asked = plan.activation_checkpointing
    return {_INTERVAL: asked.gap + 1} if asked.segment == 1 and asked.gap else {}


def _write_segments(plan: Plan) -> Mapping[str, Json]:
    """Recompute segments of several blocks in each stride; no key expresses a single block."""
    asked = plan.activation_checkpointing
    if asked.segment == 1:
        return {}
    stride = {_STRIDE: asked.segment + asked.gap} if asked.gap else {}
    return {_INTERVAL: asked.segment, **stride}


def _read_segments(found: Mapping[str, Json]) -> Mapping[str, Any]:
    segment = int(found.get(_INTERVAL) or 1)
    if segment <= 1:
        return _segments(1, 0)
    return _segments(segment, int(found.get(_STRIDE) or segment) - segment)


def _write_place(plan: Plan) -> Mapping[str, Json]:
    return {_BACKEND: "unsloth"} if plan.activation_checkpointing.offload else {}


def _read_place(found: Mapping[str, Json]) -> Mapping[str, Any]:
    word = found[_BACKEND]
    return {_OFFLOAD: _PLACES[word]} if word in _PLACES else {}


CHECKPOINTING: Final = (
    named(
        "gradient_checkpointing",
        "activation_checkpointing.mode",
        {"layer": True, "none": False},
        f"{TRAINER} enable_gradient_checkpointing",
        default="layer",
    ),
    fixed(
        "activation_checkpointing.reentrant",
        value=False,
        source="diffusers 0.35.2 and 0.42.1, ModelMixin.enable_gradient_checkpointing",
    ),
    Entry(
        (_INTERVAL,),
        _SEGMENTS,
        _write_every,
        lambda found: _segments(1, max(int(found[_INTERVAL] or 1), 1) - 1),
        "3.1.6 to 4.5.2 helpers/models/flux/transformer.py forward: index_block % interval == 0",
        until="4.6",
        absent=((ALWAYS, _segments(1, 0)),),
    ),
    Entry(
        (_INTERVAL, _STRIDE),
        _SEGMENTS,
        _write_segments,
        _read_segments,
        "4.6.1 to 4.10.1 helpers/training/gradient_checkpointing_interval.py "
        "checkpoint_sequential_state; safety_check.py takes an interval of one for none",
        since="4.6",
        absent=((ALWAYS, _segments(1, 0)),),
    ),
    fixed(
        _OFFLOAD,
        value=False,
        source="3.1.6 to 3.3.4: no helpers/training/offloaded_gradient_checkpointer.py",
        until="4.0",
    ),
    Entry(
        (_BACKEND,),
        (_OFFLOAD,),
        _write_place,
        _read_place,
        "4.0.6 to 4.10.1 helpers/training/offloaded_gradient_checkpointer.py offloaded_checkpoint",
        since="4.0",
        absent=((ALWAYS, {_OFFLOAD: False}),),
    ),
)
