"""What a TrainJob's containers run, run as two pods would: their ranks meet."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from packaging.version import Version
from test_slurm import BIN, NIGHTLY, SPREAD, TRAIN
from tests.plans import plan_of

from tunec.compiler.emit import emit
from tunec.targets.kubeflow.pods import bundle_yaml
from tunec.targets.registry import TARGETS

SECONDS = 300.0


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param("torchrun", marks=NIGHTLY),
        "deepspeed",
        pytest.param("accelerate", marks=NIGHTLY),
    ],
)
def test_the_ranks_of_two_pods_meet(launcher: str, tmp_path: Path, free_port: int) -> None:
    """The claim is a directory; the kubelet's mounts are links, and pip has nothing to add."""
    pytest.importorskip(launcher if launcher != "torchrun" else "torch")
    plan = plan_of(
        SPREAD,
        {"launch.launcher": launcher, "launch.script": "../train.py --lr 1"},
        {"job.volume": "work", "job.packages": ()},
    )
    target = TARGETS["kubeflow"]
    artifacts, faults = emit(target, plan, Version(target.latest))
    assert not faults
    texts = {f"kubeflow/{each.name}": each.text for each in artifacts}
    job = yaml.safe_load(texts["kubeflow/trainjob.yaml"])
    home, bundle = tmp_path / "workspace", tmp_path / "bundle"
    home.mkdir()
    bundle.mkdir()
    (home / "train.py").write_text(TRAIN)
    for key, text in {
        "note.txt": "",
        **yaml.safe_load(bundle_yaml(plan, texts).text)["data"],
    }.items():
        (bundle / key).write_text(text)
    (said,) = job["spec"]["trainer"]["args"]
    said = said.replace("$$", "$")
    for each in (home, bundle):
        said = said.replace(f" /{each.name}/", f" {each}/")
    pods = [_pod(said, rank, free_port) for rank in range(2)]
    ended = [pod.communicate(timeout=SECONDS)[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], ended
    found = [json.loads(each.read_text()) for each in sorted(home.glob("invoices/rank-*.json"))]
    assert [(each["WORLD_SIZE"], each["sum"]) for each in found] == [("4", 4)] * 4
    assert all(each["cwd"] == str(home / "invoices") for each in found)


def _pod(text: str, rank: int, port: int) -> "subprocess.Popen[str]":
    variables = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
    }
    return subprocess.Popen(
        ["bash", "-c", text],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
