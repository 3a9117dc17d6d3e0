"""A node's container in both manifests, read and written: command, variables, resources."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json
from tunec.schemas.terms import Vendor
from tunec.targets.accelerate.ranks import counted, uses_every_device
from tunec.targets.kubeflow.pods import BUNDLE, HOME
from tunec.targets.launch.node_setup import (
    called,
    dns_label,
    installed_packages,
    packages_line,
    setup_lines,
    setup_text,
    without_setup,
)
from tunec.targets.launch.script import command, is_spread, parse

RESOURCES: Final[Mapping[Vendor, str]] = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "habana.ai/gaudi",
    "huawei": "huawei.com/Ascend910",
}
"""The names of devices in device plugins: NVIDIA/k8s-device-plugin, ROCm/k8s-device-plugin, Intel
Gaudi device plugin for Kubernetes, Ascend device plugin (mindxdl)."""
_MEMORY: Final = "memory"
_CONFIG: Final = "kubeflow/accelerate.yaml"
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


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def write_command(plan: Plan, meeting: Mapping[str, str]) -> list[str]:
    """The argument of `bash -c`; `meeting` maps the launcher's variables to those of a pod."""
    nodes, per_node = counted(plan)
    values: dict[str, Json] = {"launcher": plan.launch.launcher, "script": _words(plan)}
    if plan.launch.launcher != "python" or nodes > 1:
        values |= {"nodes": nodes, "per_node": per_node}
    spread = is_spread(values)
    parts = (
        "set -euo pipefail\n",
        unpacked(plan),
        setup_text(plan.job.setup),
        called(plan.job.setup),
        "" if plan.job.image else packages_line(plan, _PIP_FLAGS),
        "".join(f'{name}="${{{pod}}}"\n' for name, pod in meeting.items() if spread),
        _hosts(nodes, per_node) if spread and plan.launch.launcher == "deepspeed" else "",
        command(values, _CONFIG, "") + "\n",
    )
    return [_escaped("".join(parts))]


_PIP_FLAGS: Final = "--quiet --break-system-packages "
"""Flags for pip: an image's Python belongs to its distribution (PEP 668), and the pod's user is
root."""


def unpacked(plan: Plan) -> str:
    """The shell lines that copy the bundle's files from a ConfigMap to where the run starts.

    A key has no slashes (kubernetes ConfigMap: alphanumeric characters, `-`, `_` and `.`). The pods
    share the volume, so each file is put in place as a whole, because another pod may read it
    already.
    """
    root = f"{HOME}/{dns_label(plan.job.name)}"
    return (
        f"mkdir -p {root}\n"
        f"cd {root}\n"
        f"for file in {BUNDLE}/*; do\n"
        '  path="${file##*/}"\n'
        '  path="${path//__//}"\n'
        '  mkdir -p "$(dirname "${path}")"\n'
        '  part="$(mktemp "${path}.XXXXXX")"\n'
        '  cp "${file}" "${part}"\n'
        '  mv "${part}" "${path}"\n'
        "done\n"
    )


def _hosts(nodes: int, per_node: int) -> str:
    """The host file of DeepSpeed's launcher, which only counts its lines if nothing uses ssh.

    deepspeed 0.14.5 to 0.19.8 launcher/runner.py `main`, `--no_ssh`: the names are only used as
    keys of `world_info`, of which launch.py takes the one of its own `--node_rank`.
    """
    lines = "".join(f"node-{number} slots={per_node}\\n" for number in range(nodes))
    return f'HOSTFILE="$(mktemp)"\nprintf \'{lines}\' > "${{HOSTFILE}}"\n'


def _words(plan: Plan) -> list[str]:
    try:
        return shlex.split(plan.launch.script)
    except ValueError:  # an open quote: the row then reports the slot
        return []


def read_command(arguments: Json) -> Mapping[str, Any]:
    """Launcher and script from a shell text, or from the words of a command."""
    text = command_text(arguments)
    found = parse(without_setup(text))
    prepared = {"job.setup": setup_lines(text), "job.packages": installed_packages(text)}
    said = {**prepared, **_launched(found)}
    return {**said, "launch.script": shlex.join(found["script"])} if "script" in found else said


def _launched(found: Json) -> Mapping[str, Any]:
    return {"launch.launcher": found["launcher"]} if "launcher" in found else {}


def command_text(arguments: Sequence[str]) -> str:
    """The text that the shell gets in the pod."""
    text = arguments[0] if len(arguments) == 1 else shlex.join(arguments)
    return _unescaped(text)


def _escaped(text: str) -> str:
    """A text with `$(` and `$$` escaped, which the kubelet expands.

    kubernetes expansion/expand.go `Expand`.
    """
    return _OPENS.sub("$$", text)


def _unescaped(text: str) -> str:
    return text.replace("$$", "$")


# ── variables ────────────────────────────────────────────────────────────────────────────────────


def write_environment(plan: Plan) -> list[Json]:
    """The variables as a container's list."""
    return [{"name": name, "value": _escaped(value)} for name, value in plan.launch.environment]


def read_environment(listed: Json) -> dict[str, str]:
    """Variables with literal values; those from a secret or a field belong to the cluster."""
    return {each["name"]: _unescaped(each["value"]) for each in listed if "value" in each}


def read_variables(listed: Json) -> Mapping[str, Any]:
    """The slots that a container's variables set."""
    found = read_environment(listed)
    return {
        "launch.environment": tuple(found.items()),
        "precision.deprecated_fp16": found.get("DS_ALLOW_DEPRECATED_FP16") == "1",
    }


# ── resources ────────────────────────────────────────────────────────────────────────────────────


def write_limits(plan: Plan) -> dict[str, Json]:
    """Devices and host memory of a node, as quantities; requests default to the limits.

    A quantity is text if the API writes it back (Kubernetes API `ResourceRequirements`).
    """
    devices = {RESOURCES[plan.devices.vendor]: str(counted(plan)[1])}
    return {**devices, _MEMORY: _size(plan.job.host_memory)}


def _size(bytes_: int) -> str:
    for unit in ("Gi", "Mi", "Ki"):
        if bytes_ % _UNITS[unit] == 0:
            return f"{bytes_ // _UNITS[unit]}{unit}"
    return str(bytes_)


def read_limits(limits: Json) -> Mapping[str, Any]:
    """The devices of a node, their vendor, and the requested memory."""
    size = _SIZE.fullmatch(str(limits.get(_MEMORY, "")))
    memory = {"job.host_memory": int(size[1]) * _UNITS[size[2]]} if size else {}
    for vendor, name in RESOURCES.items():
        if name in limits:
            return {"devices.per_node": int(limits[name]), "devices.vendor": vendor, **memory}
    return memory
