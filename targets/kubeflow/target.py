"""The kubeflow target: trainjob.yaml for Kubeflow Trainer, pytorchjob.yaml for the older operator.

Both describe the same run, for a cluster with one of the two operators.
"""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.releases import Package, Releases
from tunec.compiler.start_commands import Start
from tunec.compiler.target import Cannot, Entry, File, Json, Target, constant, same
from tunec.targets.accelerate.config import ACCELERATE_CONFIG
from tunec.targets.accelerate.deepspeed import section_defaults
from tunec.targets.accelerate.packages import ACCELERATE
from tunec.targets.accelerate.ranks import counted
from tunec.targets.delegation import by_manager
from tunec.targets.kubeflow.container import (
    read_command,
    read_limits,
    read_variables,
    write_command,
    write_environment,
    write_limits,
)
from tunec.targets.kubeflow.pods import (
    BUNDLE_YAML,
    bundle_yaml,
    image_of,
    lacking,
    mounts,
    read_image,
    volumes,
)
from tunec.targets.kubeflow.rows import Keys, each, named, nodes, rows, volume
from tunec.targets.launch.node_setup import dns_label

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
"""The variables of kubeflow/trainer v2.0.1 to v2.3.0 pkg/constants/constants.go `TorchEnv...`."""

_NODE: Final = "node"
"""The name of the runtime's replicated job that trains, and of its container."""
_POD_JOBS: Final = {"targetJobs": [{"name": _NODE}]}


def _pod(plan: Plan) -> Json:
    """The volumes and mounts that are added to the runtime's pods."""
    containers = [{"name": _NODE, "volumeMounts": mounts()}]
    return {"volumes": volumes(plan), "containers": containers}


def _patches(plan: Plan) -> Json:
    """A patch of the runtime's pods, with the name of its manager."""
    job = {"name": _NODE, "template": {"spec": {"template": {"spec": _pod(plan)}}}}
    spec = {"template": {"spec": {"replicatedJobs": [job]}}}
    return [{"manager": "tunec", "trainingRuntimeSpec": spec}]


def _patched(listed: Json) -> Json:
    """The volumes in a patch."""
    (job,) = listed[0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    return job["template"]["spec"]["template"]["spec"]["volumes"]


_TYPES: Final = "pkg/apis/trainer/v1alpha1/trainjob_types.go"


def _train_keys() -> Keys:
    return Keys(
        nodes=(("spec.trainer.numNodes", lambda plan: counted(plan)[0], nodes),),
        processes=("spec.trainer.numProcPerNode", lambda plan: counted(plan)[1], each),
        variables=("spec.trainer.env", write_environment, read_variables),
        resources=("spec.trainer.resourcesPerNode.limits", write_limits, read_limits),
        command=("spec.trainer.args", lambda plan: write_command(plan, _PET), read_command),
        image=("spec.trainer.image", image_of, read_image),
        source=_TRAINJOB,
    )


def _mounted() -> tuple[Entry, ...]:
    """Rows for the pods' volumes, by the key of each release."""
    return (
        volume(
            "spec.podSpecOverrides",
            lambda plan: [{**_POD_JOBS, **_pod(plan)}],
            lambda listed: listed[0]["volumes"],
            f"kubeflow/trainer v2.0.1 {_TYPES} `PodSpecOverride`",
            until="2.1",
        ),
        volume(
            "spec.podTemplateOverrides",
            lambda plan: [{**_POD_JOBS, "spec": _pod(plan)}],
            lambda listed: listed[0]["spec"]["volumes"],
            f"kubeflow/trainer v2.1.0 {_TYPES} `PodTemplateOverride`",
            since="2.1",
            until="2.2",
        ),
        volume(
            "spec.runtimePatches",
            _patches,
            _patched,
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
        *named(_train_keys(), lambda plan: dns_label(plan.job.name)),
        same(
            "spec.activeDeadlineSeconds",
            "job.time_limit",
            f"kubeflow/trainer v2.2.1 and v2.3.0 {_TYPES} `TrainJobSpec`",
            since="2.2",
            default=None,
        ),
        constant(
            "spec.runtimeRef.name",
            "torch-distributed",
            f"{_TRAINER} manifests/base/runtimes/torch_distributed.yaml",
        ),
        constant("spec.trainer.command", ["bash", "-c"], _TRAINJOB),
        *_mounted(),
        *rows(_train_keys()),
    ),
    recognise=_is_trainjob,
    check=lacking,
)


# ── PyTorchJob ───────────────────────────────────────────────────────────────────────────────────

_REPLICAS: Final = "spec.pytorchReplicaSpecs"
_MEETING: Final = {"NODE_RANK": "PET_NODE_RANK"}
"""The pod's variable for the node's rank: kubeflow/training-operator v1.7.0 to v1.9.4
pkg/controller.v1/pytorch/envvar.go `setPodEnv`. MASTER_ADDR and MASTER_PORT need no renaming."""


def _container(plan: Plan) -> dict[str, Json]:
    image = image_of(plan)
    return {
        "name": "pytorch",
        **({} if image is None else {"image": image}),
        "command": ["bash", "-c"],
        "args": write_command(plan, _MEETING),
        "env": write_environment(plan),
        "resources": {"limits": write_limits(plan)},
        "volumeMounts": mounts(),
    }


def _replicas(plan: Plan, count: int) -> dict[str, Json]:
    pod = {"containers": [_container(plan)], "volumes": volumes(plan)}
    return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": pod}}


def _workers(plan: Plan) -> Json:
    """The replicas for all nodes but the first; None, which omits the key, if there are none."""
    count = counted(plan)[0] - 1
    return _replicas(plan, count) if count else None


def _count(replicas: Json) -> Mapping[str, Any]:
    return nodes(replicas.get("replicas", 1))


def _named(replicas: Json) -> Mapping[str, Any]:
    """The container that the operator treats as the training container."""
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
    image=(_MASTER, _master, lambda found: read_image(_named(found).get("image", ""))),
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
        *named(_TORCH_KEYS, lambda plan: dns_label(plan.job.name)),
        constant(
            "spec.runPolicy.cleanPodPolicy",
            "None",
            "kubeflow-training 1.7.0 to 1.9.4 KubeflowOrgV1PyTorchJobSpec: run_policy is required; "
            "pods and their logs stay until the job is deleted",
            package=OPERATOR,
        ),
        same(
            "spec.runPolicy.activeDeadlineSeconds",
            "job.time_limit",
            f"{_OPERATOR} pkg/apis/kubeflow.org/v1/common_types.go `RunPolicy`",
            default=None,
            package=OPERATOR,
        ),
        volume(
            _MASTER,
            _master,
            lambda replicas: replicas["template"]["spec"].get("volumes", ()),
            _PYTORCHJOB,
            package=OPERATOR,
        ),
        *rows(_TORCH_KEYS),
    ),
    recognise=_is_pytorchjob,
)


# ── the target ───────────────────────────────────────────────────────────────────────────────────


_HERE: Final = frozenset(
    {
        *("parallel.world", "launch.launcher", "launch.environment", "launch.script"),
        *("devices.vendor", "job.host_memory", "job.setup", "job.namespace", "job.volume"),
        "job.queue",
    }
)
_OWN: Final = "the spec's own image holds what is needed"
_CANNOT: Final = {
    **by_manager("Kubernetes", _HERE, "job.account", "job.qos", "job.infra", "job.spot"),
    "devices.model": Cannot("labels of nodes are the cluster's own (`nodeSelector`)"),
    "devices.visible": Cannot(
        "Kubernetes gives a container devices by their number and not by name (device plugins)",
        loses=True,
        harmless=((),),
    ),
    "job.name": Cannot("a DNS label is made of it"),
    "job.duration": Cannot("a deadline ends a job, and is no help to the scheduler"),
    "job.torch": Cannot(_OWN),
    "job.packages": Cannot(_OWN),
    "job.image": Cannot("not given: PyTorch's own, with the plan's torch"),
}

_APPLIED: Final = Start(
    ("kubectl", "apply", "-f", f"kubeflow/{BUNDLE_YAML.name}", "-f"),
    TRAINJOB.name,
    submits=True,
    needs_script=True,
    elsewhere=True,
)
"""Apply the bundle's files first, because the job mounts them."""

TARGET: Final = Target(
    name="kubeflow",
    package=API,
    supported=Releases(">=2.0,<2.4"),
    latest="2.3.0",
    releases=("2.0.1", "2.1.0", "2.2.1", "2.3.0"),
    files=(TRAINJOB, PYTORCHJOB, ACCELERATE_CONFIG, BUNDLE_YAML),
    cannot=_CANNOT,
    beside={
        "accelerate": ACCELERATE,
        OPERATOR: Package(Releases(">=1.7,<1.10"), ("1.7.0", "1.8.1", "1.9.4")),
    },
    together=section_defaults,
    starts=(_APPLIED,),
    encloses=bundle_yaml,
    takes_fsdp=True,
    verify="tunec.targets.kubeflow.verify",
)
