"""What both manifests say of a node's container: command, variables, resources; both ways."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json
from tunec.targets.accelerate.processes import counted, uses_every_device
from tunec.targets.launch.script import command, is_spread, parse

GPU: Final = "nvidia.com/gpu"
_MEMORY: Final = "memory"
_CONFIG: Final = "kubeflow/accelerate.yaml"
_UNSAFE: Final = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME: Final = 40
_OPENS: Final = re.compile(r"\$(?=[$(])")
_SIZE: Final = re.compile(r"(\d{1,19})(Ki|Mi|Gi|Ti|k|M|G|T)?")
_UNITS: Final[Mapping[str | None, int]] = {
    None: 1,
    **dict(zip("kMGT", (10**3, 10**6, 10**9, 10**12), strict=True)),
    **dict(zip(("Ki", "Mi", "Gi", "Ti"), (2**10, 2**20, 2**30, 2**40), strict=True)),
}
"""kubernetes apimachinery/pkg/api/resource/quantity.go `Quantity`."""


def gives_all(plan: Plan) -> bool:
    """Whether each node's container gets every device of the plan."""
    return uses_every_device(plan)


def job_name(plan: Plan) -> str:
    """A DNS label (RFC 1123) from the model's name, with room for what pods add to it."""
    last = plan.model.path.rstrip("/").rpartition("/")[2].lower()
    name = _UNSAFE.sub("-", last).strip("-")[:_LONGEST_NAME].strip("-")
    return f"train-{name}" if name else "train"


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def write_command(plan: Plan, meeting: Mapping[str, str]) -> list[str]:
    """The one argument of `bash -c`; `meeting` says where a pod finds what the launcher needs."""
    nodes, per_node = counted(plan)
    values: dict[str, Json] = {"launcher": plan.launch.launcher, "script": _words(plan)}
    if plan.launch.launcher != "python":
        values |= {"nodes": nodes, "per_node": per_node}
    needed = [f'{name}="${{{pod}}}"' for name, pod in meeting.items() if is_spread(values)]
    return [_escaped("\n".join((*needed, command(values, _CONFIG, ""))) + "\n")]


def _words(plan: Plan) -> list[str]:
    try:
        return shlex.split(plan.launch.script)
    except ValueError:  # an open quote: the row then reports the slot
        return []


def read_command(arguments: Json) -> Mapping[str, Any]:
    """Launcher and script from a shell text, or from words that are the command themselves."""
    found = parse(command_text(arguments))
    said = {"launch.launcher": found["launcher"]} if "launcher" in found else {}
    return {**said, "launch.script": shlex.join(found["script"])} if "script" in found else said


def command_text(arguments: Sequence[str]) -> str:
    """What the shell is given, as the pod has it."""
    text = arguments[0] if len(arguments) == 1 else shlex.join(arguments)
    return _unescaped(text)


def _escaped(text: str) -> str:
    """`$(` and `$$` mean something to the kubelet (kubernetes expansion/expand.go `Expand`)."""
    return _OPENS.sub("$$", text)


def _unescaped(text: str) -> str:
    return text.replace("$$", "$")


# ── variables ────────────────────────────────────────────────────────────────────────────────────


def write_environment(plan: Plan) -> list[Json]:
    """Variables as the list that a container has."""
    return [{"name": name, "value": _escaped(value)} for name, value in plan.launch.environment]


def read_environment(listed: Json) -> dict[str, str]:
    """Variables that are given literally; those of a secret or a field are the cluster's."""
    return {each["name"]: _unescaped(each["value"]) for each in listed if "value" in each}


def read_variables(listed: Json) -> Mapping[str, Any]:
    """What the variables of a container settle."""
    found = read_environment(listed)
    return {
        "launch.environment": tuple(found.items()),
        "precision.deprecated_fp16": found.get("DS_ALLOW_DEPRECATED_FP16") == "1",
    }


# ── resources ────────────────────────────────────────────────────────────────────────────────────


def write_limits(plan: Plan) -> dict[str, Json]:
    """Devices and host memory of a node, as quantities; requests are then the same.

    A quantity is text where the API writes it back (Kubernetes API `ResourceRequirements`).
    """
    budget = plan.devices.host_budget
    memory = {} if budget is None else {_MEMORY: _size(budget)}
    return {GPU: str(counted(plan)[1]), **memory}


def _size(bytes_: int) -> str:
    for unit in ("Gi", "Mi", "Ki"):
        if bytes_ % _UNITS[unit] == 0:
            return f"{bytes_ // _UNITS[unit]}{unit}"
    return str(bytes_)


def read_limits(limits: Json) -> Mapping[str, Any]:
    """Devices of a node and the memory that the run may take of it."""
    size = _SIZE.fullmatch(str(limits.get(_MEMORY, "")))
    memory = {"devices.host_budget": int(size[1]) * _UNITS[size[2]]} if size else {}
    devices = {"devices.per_node": int(limits[GPU])} if GPU in limits else {}
    return {**devices, **memory}
