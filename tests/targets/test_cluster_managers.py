"""Files for cluster managers: what they ask for, what they start there, and read back."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from packaging.version import Version
from tests.plans import DDP, plan_of
from tests.random_plans import plans
from tests.targets.test_launch import CASES, NUMBERS, TWO_NODES, UUIDS, by

from tunec.compiler.emit import emit
from tunec.compiler.ir.ledger import Ledger, Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_plain, read, recognise
from tunec.targets.registry import TARGETS

GIB = 2**30
every_case = pytest.mark.parametrize("name", CASES)


def emitted(target: str, plan: Plan, version: str = "") -> tuple[dict[str, Any], set[str]]:
    """The artifacts by name, and the ids of what was said of them."""
    chosen = TARGETS[target]
    artifacts, faults = emit(chosen, plan, Version(version or chosen.latest), header=("tunec",))
    return {each.name: each for each in artifacts}, {each.id for each in faults}


def slots_of(target: str, file: str, text: str) -> dict[str, Any]:
    """What a text of a file says, after its consumer's defaults."""
    chosen = TARGETS[target]
    (kind,) = (each for each in chosen.files if each.name == file)
    document = kind.parse(text) if kind.parse else yaml.safe_load(text)
    assert recognise(chosen, document) is kind
    found = read(chosen, {file: found_plain(document)}, Version(chosen.latest))
    return {each.slot: each.value for each in Ledger().add(found).winners()}


# ── Slurm ────────────────────────────────────────────────────────────────────────────────────────


def sbatch(plan: Plan) -> str:
    files, faults = emitted("slurm", plan)
    assert faults == set()
    return files["train.sbatch"].text


def options(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if "#SBATCH" in line]


def test_slurm_is_asked_for_nodes_devices_cpus_and_memory():
    plan = plan_of(TWO_NODES, DDP, by("torchrun"), {"devices.host_budget": 400 * GIB})
    workers = plan.runtime.dataloader_workers
    assert options(sbatch(plan)) == [
        "--job-name=Llama-3.1-8B",
        "--output=%x-%j.out",
        "--ntasks-per-node=1",
        f"--cpus-per-task={8 * (1 + workers)}",
        "--nodes=2",
        "--gpus-per-node=8",
        "--mem=400G",
    ]


def test_the_time_limit_is_left_to_the_user_and_memory_to_the_partition():
    asked = " ".join(options(sbatch(plan_of())))
    assert "--time" not in asked
    assert "--mem" not in asked


def test_memory_is_cut_to_whole_mebibytes():
    assert "--mem=1024M" not in sbatch(plan_of({"devices.host_budget": GIB}))
    assert "--mem=1G" in sbatch(plan_of({"devices.host_budget": GIB}))
    assert "--mem=1025M" in sbatch(plan_of({"devices.host_budget": GIB + 2**20}))
    assert "--mem=1024M" in sbatch(plan_of({"devices.host_budget": GIB + 1}))


def test_chosen_devices_need_the_whole_node():
    """A step gets devices of Slurm's choice; the batch script on an exclusive node sees all."""
    text = sbatch(plan_of(DDP, NUMBERS, by("torchrun")))
    assert {"--exclusive", "--gpus-per-node=4"} <= set(options(text))
    assert "export CUDA_VISIBLE_DEVICES=2,3" in text
    assert "srun" not in text
    assert "--gpus-per-node=2" in options(sbatch(plan_of(DDP, UUIDS, by("torchrun"))))


def test_devices_are_not_chosen_on_several_nodes():
    visible = tuple("01234567")
    environment = (("CUDA_VISIBLE_DEVICES", ",".join(visible)),)
    chosen = {"devices.visible": visible, "launch.environment": environment}
    _, faults = emitted("slurm", plan_of(TWO_NODES, DDP, by("torchrun"), chosen))
    assert "E0905" in faults


_STUB = """#!{python}
import json, os, sys
print(json.dumps({{"argv": sys.argv, "env": dict(os.environ)}}))
"""
_TOOLS = {
    "scontrol": '#!/bin/sh\nprintf "node7\\nnode8\\n"\n',
    "srun": '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nSLURM_NODEID=1 exec "$@"\n',
}


def started(text: str, folder: Path) -> dict[str, Any]:
    """What the second node really starts; srun, scontrol and the launchers are stand-ins."""
    tools = folder / "tools"
    tools.mkdir()
    stub = _STUB.format(python=sys.executable)
    launchers = dict.fromkeys(("python", "torchrun", "deepspeed", "accelerate"), stub)
    for name, body in {**_TOOLS, **launchers}.items():
        (tools / name).write_text(body)
        (tools / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node[7-8]", "SLURM_CPUS_PER_TASK": "4"}
    done = subprocess.run(
        ["bash", "-c", text, "train.sbatch", "--more", "x y"],
        env={"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(folder), **job},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@every_case
def test_a_slurm_job_starts_what_the_launch_script_starts(name, tmp_path):
    plan = CASES[name]
    call = started(sbatch(plan), tmp_path)
    argv, env = call["argv"], call["env"]
    assert Path(argv[0]).name == plan.launch.launcher
    assert argv[-2:] == ["--more", "x y"]
    assert {key: env[key] for key, _ in plan.launch.environment} == dict(plan.launch.environment)
    if plan.devices.nodes > 1:
        rank = "--machine_rank=1" if plan.launch.launcher == "accelerate" else "--node_rank=1"
        assert rank in argv
        assert any(word.endswith(("master_addr=node7", "process_ip=node7")) for word in argv)
        assert any(word.endswith("port=20041") for word in argv)


def test_deepspeed_s_host_file_names_the_job_s_nodes(tmp_path):
    call = started(sbatch(CASES["deepspeed on two nodes"]), tmp_path)
    assert f"--hostfile={tmp_path}/hostfile.41" in call["argv"]
    assert (tmp_path / "hostfile.41").read_text() == "node7 slots=8\nnode8 slots=8\n"


@every_case
def test_a_batch_script_says_what_the_launch_script_says(name):
    found = slots_of("slurm", "train.sbatch", sbatch(CASES[name]))
    plan = CASES[name]
    for slot in ("launch.launcher", "launch.script", "launch.environment"):
        assert found[slot] == plan[slot]
    if not plan.devices.visible and name != "idle devices":
        assert found["devices.nodes"] == plan.devices.nodes
        assert found["devices.per_node"] == plan.devices.per_node


OTHERS = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gres=gpu:a100:2
#SBATCH --mem=64GB
#SBATCH --time=1:00:00
module load cuda
#SBATCH --nodes=9
srun torchrun --nnodes=4 --nproc_per_node=2 train.py
torchrun --nnodes=4 --nproc_per_node=2 train.py --lr 1
"""


def test_a_batch_script_of_others_is_read_up_to_its_first_command():
    found = slots_of("slurm", "train.sbatch", OTHERS)
    assert (found["devices.nodes"], found["devices.per_node"]) == (4, 2)
    assert found["devices.host_budget"] == 64 * GIB
    assert found["parallel.world"] == 8


# ── Kubeflow ─────────────────────────────────────────────────────────────────────────────────────


def manifests(plan: Plan) -> dict[str, Any]:
    files, faults = emitted("kubeflow", plan)
    assert faults == set()
    return {name: yaml.safe_load(each.text) for name, each in files.items()}


def test_a_trainjob_has_nodes_processes_devices_and_memory():
    plan = plan_of(TWO_NODES, DDP, by("torchrun"), {"devices.host_budget": 400 * GIB})
    job = manifests(plan)["trainjob.yaml"]
    trainer = job["spec"]["trainer"]
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert job["metadata"]["name"] == "train-llama-3-1-8b"
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 8)
    limits = {"nvidia.com/gpu": "8", "memory": "400Gi"}
    assert trainer["resourcesPerNode"] == {"limits": limits}


def test_a_pytorchjob_has_one_master_and_the_other_nodes_as_workers():
    job = manifests(plan_of(TWO_NODES, DDP, by("torchrun")))["pytorchjob.yaml"]
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {name: each["replicas"] for name, each in replicas.items()} == {"Master": 1, "Worker": 1}
    assert replicas["Master"]["template"] == replicas["Worker"]["template"]
    alone = manifests(plan_of(DDP, by("torchrun")))["pytorchjob.yaml"]
    assert list(alone["spec"]["pytorchReplicaSpecs"]) == ["Master"]


def in_pod(text: str) -> str:
    """What the kubelet hands on (kubernetes expansion/expand.go): `$$` is `$`, `$(X)` is X."""
    assert "$(" not in text.replace("$$", "")
    return text.replace("$$", "$")


def run_in(text: str, folder: Path, env: Mapping[str, str]) -> list[str]:
    """The words that a shell text starts a launcher with."""
    stub = _STUB.format(python=sys.executable)
    for name in ("python", "torchrun", "deepspeed", "accelerate"):
        (folder / name).write_text(stub)
        (folder / name).chmod(0o755)
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", text], env=path | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["argv"][1:]


PODS = {
    "trainjob.yaml": {"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "a", "PET_MASTER_PORT": "29400"},
    "pytorchjob.yaml": {"PET_NODE_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "29400"},
}


@pytest.mark.parametrize("file", PODS)
def test_the_second_pod_joins_the_first(file, tmp_path):
    job = manifests(plan_of(TWO_NODES, DDP, by("torchrun", "train.py --note '$(X) $$ x'")))[file]
    held = job["spec"].get("trainer")
    if held is None:
        pod = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
        (held,) = pod["containers"]
    assert held["command"] == ["bash", "-c"]
    words = run_in(in_pod(held["args"][0]), tmp_path, PODS[file])
    assert words == [
        *("--nnodes=2", "--node_rank=1", "--master_addr=a", "--master_port=29400"),
        *("--nproc_per_node=8", "train.py", "--note", "$(X) $$ x"),
    ]


@pytest.mark.parametrize("target", ["kubeflow", "skypilot"])
def test_pods_and_clouds_give_devices_of_their_own_choice(target):
    assert "E0901" in emitted(target, plan_of(DDP, UUIDS, by("torchrun"), SXM))[1]


def test_deepspeed_s_launcher_has_no_host_file_in_pods():
    assert "E0905" in emitted("kubeflow", plan_of(TWO_NODES))[1]
    assert emitted("kubeflow", plan_of())[1] == set()


# ── SkyPilot ─────────────────────────────────────────────────────────────────────────────────────

SXM = {"devices.model": "a100-sxm4-80g"}


def task(*changes: Mapping[str, Any]) -> dict[str, Any]:
    files, faults = emitted("skypilot", plan_of(SXM, *changes))
    assert faults == set()
    return yaml.safe_load(files["task.yaml"].text)


def test_a_task_asks_for_accelerators_by_skypilot_s_names():
    found = task(TWO_NODES, DDP, by("torchrun"), {"devices.host_budget": 400 * GIB})
    assert found["resources"] == {"accelerators": {"A100-80GB": 8}, "memory": "400+"}
    assert found["num_nodes"] == 2
    assert "E0901" in emitted("skypilot", plan_of({"devices.model": "titan-xp"}))[1]


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed", "accelerate"])
def test_the_second_machine_joins_the_first(launcher, tmp_path):
    changes = {} if launcher == "deepspeed" else DDP
    text = task(TWO_NODES, changes, by(launcher, "train.py 'a b'"))["run"]
    node = {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8"}
    words = run_in(text, tmp_path, node)
    assert words[-2:] == ["train.py", "a b"]
    rank = "--machine_rank=1" if launcher == "accelerate" else "--node_rank=1"
    assert rank in words
    assert any(word.endswith("=10.0.0.7") for word in words)
    if launcher == "deepspeed":
        (hosts,) = (Path(word.partition("=")[2]) for word in words if "--hostfile" in word)
        assert hosts.read_text() == "10.0.0.7 slots=8\n10.0.0.8 slots=8\n"


def test_a_task_of_others_is_read():
    text = (
        "resources:\n  accelerators: l4:2\n  memory: 32+\nrun: torchrun --nproc_per_node 2 a.py\n"
    )
    found = slots_of("skypilot", "task.yaml", text)
    assert (found["devices.model"], found["devices.per_node"]) == ("l4", 2)
    assert (found["devices.nodes"], found["parallel.world"]) == (1, 2)
    assert found["devices.host_budget"] == 32 * GIB


# ── every one of them ────────────────────────────────────────────────────────────────────────────

MANAGERS = ("slurm", "kubeflow", "skypilot")


@pytest.mark.parametrize("target", MANAGERS)
@given(plan=plans())
@settings(max_examples=60)
def test_every_slot_that_is_said_comes_back(target, plan):
    chosen = TARGETS[target]
    version = Version(chosen.latest)
    artifacts, faults = emit(chosen, plan, version)
    assert {each.id for each in faults} <= {"E0901", "E0905"}
    assert emit(chosen, plan, version)[0] == artifacts
    lost = {each.labels[0].path for each in faults if each.id == "E0901"}
    for artifact in artifacts:
        (file,) = (each for each in chosen.files if each.name == artifact.name)
        document = file.parse(artifact.text) if file.parse else yaml.safe_load(artifact.text)
        assert recognise(chosen, document) is file
        found = read(chosen, {file.name: found_plain(document)}, version)
        held = {each.slot: each.value for each in found if each.rank is Rank.CONSUMER}
        held |= {each.slot: each.value for each in found if each.rank is Rank.OBSERVED}
        rows = (row for row in file.entries if row.holds_in(chosen.dialect(version)))
        said = {slot for row in rows if row.when(plan) for slot in row.slots}
        assert {slot: held[slot] for slot in said - lost} == {s: plan[s] for s in said - lost}
