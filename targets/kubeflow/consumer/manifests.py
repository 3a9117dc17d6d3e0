"""Manifests read and written again by the classes of Kubeflow's clients."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import yaml

Answer = dict[str, Any]


def trainjob(question: Mapping[str, Any]) -> Answer:
    """`yaml` as a `TrainerV1alpha1TrainJob`, written again."""
    from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

    def held(document: Any) -> Any:
        made = TrainerV1alpha1TrainJob.from_dict(document)
        return made.to_dict() if made is not None else {}

    return _answer("kubeflow-trainer-api", question, held)


@dataclass(frozen=True, slots=True)
class _Response:
    """The object that the client accepts as a server's response."""

    data: str


def pytorchjob(question: Mapping[str, Any]) -> Answer:
    """`yaml` as a `KubeflowOrgV1PyTorchJob`, as the client would send it."""
    from kubeflow.training import ApiClient

    def held(document: Any) -> Any:
        client = ApiClient()
        made = client.deserialize(_Response(json.dumps(document)), "KubeflowOrgV1PyTorchJob")
        return client.sanitize_for_serialization(made)

    return _answer("kubeflow-training", question, held)


def _answer(package: str, question: Mapping[str, Any], held: Any) -> Answer:
    version = metadata.version(package)
    try:
        values = held(yaml.safe_load(question["yaml"]))
    except ImportError:
        raise
    except Exception as fault:  # noqa: BLE001  whatever it raises is its answer
        said = " ".join(str(fault).split())
        return {"version": version, "values": {}, "refused": f"{type(fault).__name__}: {said}"}
    return {"version": version, "values": json.loads(json.dumps(values)), "refused": None}
