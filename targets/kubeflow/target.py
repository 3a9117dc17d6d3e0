"""The kubeflow target: trainjob.yaml for Kubeflow Trainer, pytorchjob.yaml for the older operator.

They say the same run; a cluster has one of the two operators.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.releases import Package, Releases
from tunec.compiler.starting import Start
from tunec.compiler.target import Cannot, File, Json, Target, constant, derived
from tunec.targets.accelerate.config import ACCELERATE_CONFIG
from tunec.targets.accelerate.packages import ACCELERATE
from tunec.targets.accelerate.processes import counted
from tunec.targets.accelerate.sections import section_defaults
from tunec.targets.kubeflow.container import (
    job_name,
    read_command,
    read_limits,
    read_variables,
    write_command,
    write_environment,
    write_limits,
)
from tunec.targets.kubeflow.rows import Keys, each, nodes, rows

API: Final = "kubeflow-trainer-api"
OPERATOR: Final = "kubeflow-training"
_TRAINER: Final = "kubeflow/trainer v2.0.1 to v2.3.0"
_TRAINJOB: Final = f"{_TRAINER} pkg/apis/trainer/v1alpha1/trainjob_types.go `Trainer`"
_OPERATOR: Final = "kubeflow/training-operator v1.7.0 to v1.9.4"
_PYTORCHJOB: Final = f"{_OPERATOR} pkg/apis/kubeflow.org/v1/pytorch_types.go `PyTorchJobSpec`"

# ── TrainJob ─────────────────────────────────────────────────────────────────────────────────────

_PET: Final = {
    "NODE_RANK": "PET_NODE_RANK",
    "MASTER_ADDR": "PET_MASTER_ADDR",
    "MASTER_PORT": "PET_MASTER_PORT",
}
"""kubeflow/trainer v2.0.1 to v2.3.0 pkg/constants/constants.go `TorchEnv...`."""

_TRAIN_KEYS: Final = Keys(
    nodes=(("spec.trainer.numNodes", lambda plan: counted(plan)[0], nodes),),
    processes=("spec.trainer.numProcPerNode", lambda plan: counted(plan)[1], each),
    variables=("spec.trainer.env", write_environment, read_variables),
    resources=("spec.trainer.resourcesPerNode.limits", write_limits, read_limits),
    command=("spec.trainer.args", lambda plan: write_command(plan, _PET), read_command),
    source=_TRAINJOB,
)


_SHARED: Final = "shared-memory"
_NODE: Final = "node"
"""The replicated job of the runtime, and its container, that train."""
_VOLUME: Final[Json] = {"name": _SHARED, "emptyDir": {"medium": "Memory"}}
_MOUNT: Final[Json] = {"name": _SHARED, "mountPath": "/dev/shm"}  # noqa: S108  of the pod
"""Shared memory is what data loading processes and NCCL pass tensors by; 64 MiB unasked."""
_POD: Final[Json] = {
    "volumes": [_VOLUME],
    "containers": [{"name": _NODE, "volumeMounts": [_MOUNT]}],
}


def _patch() -> Json:
    """A patch of the runtime's pods, with the name of whoever owns it."""
    job = {"name": _NODE, "template": {"spec": {"template": {"spec": _POD}}}}
    return {
        "manager": "tunec",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
    }


_JOBS: Final = {"targetJobs": [{"name": _NODE}]}
_TYPES: Final = "pkg/apis/trainer/v1alpha1/trainjob_types.go"
_MOUNTED: Final = (
    constant(
        "spec.podSpecOverrides",
        [{**_JOBS, **_POD}],
        f"kubeflow/trainer v2.0.1 {_TYPES} `PodSpecOverride`",
        until="2.1",
    ),
    constant(
        "spec.podTemplateOverrides",
        [{**_JOBS, "spec": _POD}],
        f"kubeflow/trainer v2.1.0 {_TYPES} `PodTemplateOverride`",
        since="2.1",
        until="2.2",
    ),
    constant(
        "spec.runtimePatches",
        [_patch()],
        f"kubeflow/trainer v2.2.1 and v2.3.0 {_TYPES} `RuntimePatch`",
        since="2.2",
    ),
)


def _is_trainjob(document: Json) -> bool:
    return isinstance(document, dict) and document.get("kind") == "TrainJob"


TRAINJOB: Final = File(
    name="trainjob.yaml",
    format="yaml",
    entries=(
        constant("apiVersion", "trainer.kubeflow.org/v1alpha1", _TRAINJOB),
        constant("kind", "TrainJob", _TRAINJOB),
        derived("metadata.name", job_name, f"{_TRAINER} TrainJob: an RFC 1035 label"),
        constant(
            "spec.runtimeRef.name",
            "torch-distributed",
            f"{_TRAINER} manifests/base/runtimes/torch_distributed.yaml",
        ),
        constant("spec.trainer.command", ["bash", "-c"], _TRAINJOB),
        *_MOUNTED,
        *rows(_TRAIN_KEYS),
    ),
    recognise=_is_trainjob,
    check=lambda plan, _: _by_deepspeed(plan),
)


# ── PyTorchJob ───────────────────────────────────────────────────────────────────────────────────

_REPLICAS: Final = "spec.pytorchReplicaSpecs"
_MEETING: Final = {"NODE_RANK": "PET_NODE_RANK"}
"""kubeflow/training-operator v1.7.0 to v1.9.4 pkg/controller.v1/pytorch/envvar.go `setPodEnv`;
MASTER_ADDR and MASTER_PORT are set under these names."""
_IMAGE: Final = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"


def _container(plan: Plan) -> dict[str, Json]:
    return {
        "name": "pytorch",
        "image": _IMAGE,
        "command": ["bash", "-c"],
        "args": write_command(plan, _MEETING),
        "env": write_environment(plan),
        "resources": {"limits": write_limits(plan)},
        "volumeMounts": [_MOUNT],
    }


def _replicas(plan: Plan, count: int) -> dict[str, Json]:
    pod = {"containers": [_container(plan)], "volumes": [_VOLUME]}
    return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": pod}}


def _workers(plan: Plan) -> Json:
    """The nodes after the first; none: no key."""
    count = counted(plan)[0] - 1
    return _replicas(plan, count) if count else None


def _count(replicas: Json) -> Mapping[str, Any]:
    return nodes(replicas.get("replicas", 1))


def _named(replicas: Json) -> Mapping[str, Any]:
    """The container that the operator takes for the training one."""
    listed = replicas["template"]["spec"]["containers"]
    found: Mapping[str, Any] = next(one for one in listed if one["name"] == "pytorch")
    return found


def _read_words(replicas: Json) -> Mapping[str, Any]:
    held = _named(replicas)
    words = [*held.get("command", ()), *held.get("args", ())]
    return read_command(words[2:] if words[:2] == ["bash", "-c"] else words)


_MASTER: Final = f"{_REPLICAS}.Master"


def _master(plan: Plan) -> Json:
    return _replicas(plan, 1)


_TORCH_KEYS: Final = Keys(
    nodes=((_MASTER, _master, _count), (f"{_REPLICAS}.Worker", _workers, _count)),
    processes=("spec.nprocPerNode", lambda plan: str(counted(plan)[1]), each),
    variables=(_MASTER, _master, lambda found: read_variables(_named(found).get("env", []))),
    resources=(
        _MASTER,
        _master,
        lambda found: read_limits(_named(found).get("resources", {}).get("limits", {})),
    ),
    command=(_MASTER, _master, _read_words),
    source=_PYTORCHJOB,
    package=OPERATOR,
)


def _is_pytorchjob(document: Json) -> bool:
    return isinstance(document, dict) and document.get("kind") == "PyTorchJob"


PYTORCHJOB: Final = File(
    name="pytorchjob.yaml",
    format="yaml",
    entries=(
        constant("apiVersion", "kubeflow.org/v1", _PYTORCHJOB, package=OPERATOR),
        constant("kind", "PyTorchJob", _PYTORCHJOB, package=OPERATOR),
        derived("metadata.name", job_name, f"{_PYTORCHJOB}: an RFC 1035 label", package=OPERATOR),
        constant(
            "spec.runPolicy.cleanPodPolicy",
            "None",
            "kubeflow-training 1.7.0 to 1.9.4 KubeflowOrgV1PyTorchJobSpec: run_policy is required; "
            "pods and their logs stay until the job is deleted",
            package=OPERATOR,
        ),
        *rows(_TORCH_KEYS),
    ),
    recognise=_is_pytorchjob,
)


# ── the target ───────────────────────────────────────────────────────────────────────────────────


def _by_deepspeed(plan: Plan) -> Iterator[Diagnostic]:
    """DeepSpeed's launcher reads the nodes from a host file, and pods have none."""
    if plan.launch.launcher != "deepspeed" or counted(plan)[0] == 1:
        return
    yield Diagnostic(
        "E0905",
        "error",
        "the deepspeed launcher needs a host file on several nodes, and pods have none",
        (Label("chosen here", path="launcher"),),
        ("deepspeed 0.14.5 to 0.19.8 launcher/runner.py `main`",),
        help="use `launcher: torchrun`, which starts DeepSpeed as well",
    )


_HERE: Final = ("parallel.world", "launch.launcher", "launch.environment", "launch.script")
_IDLE: Final = "the plan leaves devices idle, and starts processes on the others"
_CANNOT: Final = {
    **{slot: Cannot("the trainer's own files say it") for slot in SLOTS if slot not in _HERE},
    "devices.model": Cannot("labels of nodes are the cluster's own (`nodeSelector`)"),
    "devices.nodes": Cannot(_IDLE),
    "devices.per_node": Cannot(_IDLE),
    "devices.visible": Cannot(
        "Kubernetes gives a container devices by their number and not by name (device plugins)",
        loses=True,
        harmless=((),),
    ),
    "devices.host_budget": Cannot("unknown: the pod has no limit"),
    "precision.deprecated_fp16": Cannot("only DeepSpeed asks for it"),
}

TARGET: Final = Target(
    name="kubeflow",
    package=API,
    supported=Releases(">=2.0,<2.4"),
    latest="2.3.0",
    releases=("2.0.1", "2.1.0", "2.2.1", "2.3.0"),
    files=(TRAINJOB, PYTORCHJOB, ACCELERATE_CONFIG),
    cannot=_CANNOT,
    beside={
        "accelerate": ACCELERATE,
        OPERATOR: Package(Releases(">=1.7,<1.10"), ("1.7.0", "1.8.1", "1.9.4")),
    },
    together=section_defaults,
    takes_fsdp=True,
    starts=(Start(("kubectl", "apply", "-f"), TRAINJOB.name, submits=True, needs_script=True),),
    verify="tunec.targets.kubeflow.verify",
)
