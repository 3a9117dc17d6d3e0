"""What both manifests mount: shared memory, the bundle's files, and what holds the user's own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json
from tunec.targets.launch.job_names import dns_label

HOME: Final = "/workspace"
"""The directory beside the bundle: what a spec's relative paths start from."""
BUNDLE: Final = "/bundle"
"""Where the ConfigMap lies."""
_SHARED: Final = "shared-memory"
_OWN: Final = "workspace"
_FILES: Final = "bundle"
_MOUNTS: Final[Json] = [
    {"name": _SHARED, "mountPath": "/dev/shm"},  # noqa: S108  of the pod
    {"name": _FILES, "mountPath": BUNDLE, "readOnly": True},
    {"name": _OWN, "mountPath": HOME},
]


def config_map(plan: Plan) -> str:
    """What the ConfigMap with the bundle's files is called."""
    return f"{dns_label(plan.job.name)}-bundle"


def volumes(plan: Plan) -> list[Json]:
    """Shared memory, the bundle, and the claim, or else what is gone with the pod.

    Data loading processes and collectives pass tensors by shared memory: 64 MiB unasked.
    """
    claim = plan.job.volume
    own = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    return [
        {"name": _SHARED, "emptyDir": {"medium": "Memory"}},
        {"name": _FILES, "configMap": {"name": config_map(plan)}},
        {"name": _OWN, **own},
    ]


def mounts() -> list[Json]:
    """Where the container has them."""
    return list(_MOUNTS)


def read_claim(listed: Sequence[Json]) -> Mapping[str, Any]:
    """The one claim that is mounted; None where there is none, nothing where there are several."""
    found = list(_claims(listed))
    return {} if len(found) > 1 else {"job.volume": found[0] if found else None}


def _claims(listed: Sequence[Json]) -> Iterator[str]:
    for each in listed:
        if "persistentVolumeClaim" in each:
            yield each["persistentVolumeClaim"]["claimName"]
