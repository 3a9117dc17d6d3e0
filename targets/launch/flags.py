"""What launchers are told by flags, and Slurm by its batch options: read and never written.

The documents are those of `compiler/frontend/shell_nodes.py`: one of kind `launcher` for a command,
one of kind `slurm` for the `#SBATCH` lines.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.releases import Releases
from tunec.compiler.target import Entry, File, Json, Target, in_no_plan
from tunec.targets.accelerate.packages import ACCELERATE, PACKAGE
from tunec.targets.launch.target import LAUNCH_SH
from tunec.targets.read_only import observed

_COMMAND: Final = "accelerate 0.30.1 to 1.15.0 commands/launch.py `launch_command_parser`"
_SBATCH: Final = "Slurm's sbatch manual page"


def _flag(name: str, slot: str) -> Entry:
    """A flag of `accelerate launch` that holds a slot's value as it is."""
    key = f"flags.{name}"
    return observed((key,), (slot,), lambda found: {slot: found[key]}, _COMMAND, package=PACKAGE)


def _processes(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Processes in all; on each node where they divide evenly."""
    world, nodes = found["processes"], found.get("nodes", 1)
    each, rest = divmod(world, nodes)
    spread = {} if rest else {"devices.nodes": nodes, "devices.per_node": each}
    return {"parallel.world": world, **spread}


def _engine(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get("flags.use_deepspeed"):
        return {"parallel.engine": "deepspeed"}
    return {"parallel.engine": "ddp"} if found.get("flags.multi_gpu") else {}


def _mixed(found: Mapping[str, Json]) -> Mapping[str, Any]:
    word = found["flags.mixed_precision"]
    if word == "no":
        return {"states.autocast": False}
    return {"precision.compute": word, "states.autocast": True}


def _first_devices(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """`--gpu_ids 0,1` is set as CUDA_VISIBLE_DEVICES; `all` sets nothing."""
    word = str(found["flags.gpu_ids"])
    return {} if word == "all" else {"devices.visible": tuple(word.split(","))}


_ACCELERATE: Final = (
    observed(
        ("processes", "nodes"),
        ("parallel.world", "devices.nodes", "devices.per_node"),
        _processes,
        f"{_COMMAND}: --num_processes counts those of all machines",
        package=PACKAGE,
    ),
    observed(
        ("flags.use_deepspeed", "flags.multi_gpu"),
        ("parallel.engine",),
        _engine,
        _COMMAND,
        package=PACKAGE,
    ),
    observed(
        ("flags.mixed_precision",),
        ("precision.compute", "states.autocast"),
        _mixed,
        f"{_COMMAND}; utils/launch.py: ACCELERATE_MIXED_PRECISION",
        package=PACKAGE,
    ),
    observed(
        ("flags.gpu_ids",),
        ("devices.visible",),
        _first_devices,
        "accelerate 0.30.1 to 1.15.0 utils/launch.py `prepare_multi_gpu_env`",
        package=PACKAGE,
    ),
    _flag("zero_stage", "zero.stage"),
    _flag("offload_optimizer_device", "zero.offload_optimizer"),
    _flag("offload_param_device", "zero.offload_param"),
    _flag("zero3_save_16bit_model", "zero.gather_on_save"),
    _flag("gradient_accumulation_steps", "batch.accumulation"),
    _flag("gradient_clipping", "optimizer.max_grad_norm"),
)


def _is_accelerate(document: Json) -> bool:
    return isinstance(document, dict) and document.get("launcher") == "accelerate"


# ── Slurm ────────────────────────────────────────────────────────────────────────────────────────

_PER_NODE: Final = re.compile(r"(?:[A-Za-z][\w.-]*:)?(\d{1,6})")
_GRES: Final = re.compile(r"(?:gres/)?gpu(?::[A-Za-z][\w.-]*)?:(\d{1,6})(?:\(.*\))?")


def _devices(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Devices of a node: `--gpus-per-node=a100:8`, else `--gres=gpu:8`."""
    key, form = ("gpus_per_node", _PER_NODE) if "gpus_per_node" in found else ("gres", _GRES)
    count = form.fullmatch(str(found[key]))
    return {} if count is None else {"devices.per_node": int(count[1])}


def _nodes(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """`--nodes=2-4` leaves the number to the cluster."""
    return {"devices.nodes": found["nodes"]}


_BATCH: Final = (
    observed(("nodes",), ("devices.nodes",), _nodes, _SBATCH),
    observed(("gpus_per_node", "gres"), ("devices.per_node",), _devices, _SBATCH),
)


def _is_batch(document: Json) -> bool:
    if not isinstance(document, dict) or "launcher" in document:
        return False
    marks = {"gpus_per_node", "gres", "ntasks_per_node", "cpus_per_task", "partition", "ntasks"}
    return bool(marks & set(document))


TARGET: Final = Target(
    name="launchers",
    package="torch",
    supported=Releases(">=2.0,<3"),
    latest="2.13.0",
    releases=("2.13.0",),
    files=(
        File(
            "accelerate launch",
            "shell",
            (*LAUNCH_SH.entries, *_ACCELERATE),
            _is_accelerate,
            when=in_no_plan,
        ),
        File("sbatch", "shell", _BATCH, _is_batch, when=in_no_plan),
    ),
    cannot={},
    beside={PACKAGE: ACCELERATE},
)
"""What a launch script tells accelerate and Slurm."""
