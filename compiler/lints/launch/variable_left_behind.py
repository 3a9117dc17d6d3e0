"""A variable that the deepspeed launcher does not take along to the nodes."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.hosts import hostfiles
from tunec.compiler.lints.launch.scripts import count, launches
from tunec.compiler.lints.launch.variables import is_read_by_programs
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TAKEN: Final = ("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL")
"""Beginnings of the names that it exports on every node."""
_OWN: Final = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""What it sets itself, or what concerns the devices of one node."""
_OTHERWISE: Final = ("flags.no_ssh", "flags.no_ssh_check")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "deepspeed"):
        hosts = _hosts(run, document)
        by_slurm = str(document.value("flags.launcher", "pdsh")).lower() == "slurm"
        if hosts is None or by_slurm or any(document.get(key) for key in _OTHERWISE):
            continue
        for path, place in document.found.items():
            holder, _, name = path.partition(".")
            if holder == "environment" and _stays(name):
                yield _finding(name, place, hosts)


def _stays(name: str) -> bool:
    return is_read_by_programs(name) and not name.startswith(_TAKEN) and name not in _OWN


def _hosts(run: Run, document: Document) -> Place | None:
    """Where the command asks for several nodes."""
    nodes = document.get("flags.num_nodes")
    if nodes is not None:
        return nodes if (count(nodes) or 0) > 1 else None
    several = any(len(entries) > 1 for _, entries in hostfiles(run))
    return document.get("flags.hostfile") or document.get("hostfile") if several else None


def _finding(name: str, place: Place, hosts: Place) -> Finding:
    return Finding(
        f"{name} is set for the launcher, and not for the processes that it starts",
        (place.label("stays here"), hosts.label("by ssh, this node too", primary=False)),
        (f"it exports names that begin with {', '.join(_TAKEN)}, and those of .deepspeed_env",),
        f"write {name}={place.value} into .deepspeed_env, beside the script or in the home folder",
    )


RULE = Rule(
    name="variable-left-behind",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py EXPORT_ENVS, `main`: "
            "var.startswith(name) for name in exports; .deepspeed_env; "
            "accelerator/cuda_accelerator.py `export_envs`: NCCL; launcher/multinode_runner.py"
        ),
    ),
    check=_check,
)
