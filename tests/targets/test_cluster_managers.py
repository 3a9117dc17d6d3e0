"""Files for cluster managers: what they ask for, what they start there, and read back."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from packaging.version import Version
from tests.plans import DDP, plan_of
from tests.random_plans import plans
from tests.targets.test_launch import CASES, NUMBERS, TWO_NODES, UUIDS, by

from tunec.compiler.emit import emit
from tunec.compiler.ir.ledger import Ledger, Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_plain, read, recognise
from tunec.targets.kubeflow.pods import bundle_yaml
from tunec.targets.registry import TARGETS
from tunec.targets.slurm.target import seconds_of, written

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


def test_slurm_is_asked_for_nodes_devices_cpus_memory_and_time():
    """Of memory what is needed, whatever the run may take."""
    plan = plan_of(TWO_NODES, DDP, by("torchrun"), {"devices.host_budget": 1872 * GIB})
    workers = plan.runtime.dataloader_workers
    assert options(sbatch(plan)) == [
        "--job-name=invoices",
        "--output=%x-%j.out",
        "--ntasks-per-node=1",
        f"--cpus-per-task={8 * (1 + workers)}",
        "--nodes=2",
        "--gpus-per-node=8",
        "--mem=155G",
        "--time=10:00:00",
    ]


def test_a_time_that_is_not_known_is_left_to_the_partition_and_told():
    files, faults = emitted("slurm", plan_of({"job.duration": None}))
    assert faults == {"time-not-known"}
    assert "--time" not in files["train.sbatch"].text
    told = sbatch(plan_of({"job.duration": None, "job.time_limit": 12 * 3600}))
    assert "--time=12:00:00" in options(told)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("1:00:00", 3600),
        ("2-3", 183_600),
        ("2-03:04", 183_840),
        ("2-03:04:05", 183_845),
        ("UNLIMITED", None),
    ],
)
def test_times_are_read_in_every_form_of_slurm(text, seconds):
    assert seconds_of(text) == seconds
    assert seconds is None or seconds_of(written(seconds)) == seconds


def test_memory_is_cut_to_whole_mebibytes():
    assert "--mem=1G" in options(sbatch(plan_of({"job.host_memory": GIB})))
    assert "--mem=1025M" in options(sbatch(plan_of({"job.host_memory": GIB + 2**20})))
    assert "--mem=1024M" in options(sbatch(plan_of({"job.host_memory": GIB + 1})))


QUEUED = {"job.queue": "gpu,long", "job.account": "lab-7", "job.qos": "high"}


def test_where_a_job_queues_is_said_and_read_back():
    text = sbatch(plan_of(QUEUED))
    assert {"--partition=gpu,long", "--account=lab-7", "--qos=high"} <= set(options(text))
    found = slots_of("slurm", "train.sbatch", text)
    assert {slot: found[slot] for slot in QUEUED} == QUEUED
    named = sbatch(plan_of({"job.queue": "2024", "job.name": "007"}))
    read_back = slots_of("slurm", "train.sbatch", named)
    assert (read_back["job.queue"], read_back["job.name"]) == ("2024", "007")


IMAGE = {"job.image": "nvcr.io/nvidia/pytorch:25.10-py3"}


def test_a_container_is_told_to_the_step_as_enroot_names_images():
    text = sbatch(plan_of(IMAGE))
    assert "--container-image='nvcr.io#nvidia/pytorch:25.10-py3'" in text
    assert slots_of("slurm", "train.sbatch", text)["job.image"] == IMAGE["job.image"]
    assert "E0901" in emitted("slurm", plan_of(IMAGE, DDP, NUMBERS, by("torchrun")))[1]


SETUP = {"job.setup": ("export GREETING='$HOME b'", 'echo "$UNSET" > said')}


def test_the_user_s_lines_run_before_the_command_with_unset_variables_allowed(tmp_path):
    text = sbatch(plan_of(SETUP)).replace("> said", f"> {tmp_path}/said")
    call = started(text, tmp_path)
    assert call["env"]["GREETING"] == "$HOME b"
    assert (tmp_path / "said").read_text() == "\n"
    found = slots_of("slurm", "train.sbatch", sbatch(plan_of(SETUP)))
    assert found["job.setup"] == SETUP["job.setup"]
    assert found["launch.environment"] == ()


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


@pytest.mark.parametrize(
    ("name", "port"),
    [
        ("deepspeed", ["--master_port=20041"]),
        ("accelerate", ["--main_process_port=20041"]),
        ("deepspeed, chosen devices", []),
        ("torchrun", []),
    ],
)
def test_jobs_that_share_a_node_have_ports_of_their_own(name, port, tmp_path):
    call = started(sbatch(CASES[name]), tmp_path)
    assert [word for word in call["argv"] if "_port=" in word] == port


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
    assert found["job.host_memory"] == 64 * GIB
    assert found["job.time_limit"] == 3600
    assert found["parallel.world"] == 8


# ── Kubeflow ─────────────────────────────────────────────────────────────────────────────────────


VOLUME = {"job.volume": "work"}
"""A claim with the user's script and data, without which a pod has neither."""


def manifests(plan: Plan) -> dict[str, Any]:
    files, faults = emitted("kubeflow", Plan.of({**plan.values(), **VOLUME}))
    assert faults == set()
    return {name: yaml.safe_load(each.text) for name, each in files.items()}


def test_a_trainjob_has_nodes_processes_devices_and_memory():
    plan = plan_of(TWO_NODES, DDP, by("torchrun"), {"devices.host_budget": 1360 * GIB})
    job = manifests(plan)["trainjob.yaml"]
    trainer = job["spec"]["trainer"]
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert job["metadata"]["name"] == "invoices"
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 8)
    limits = {"nvidia.com/gpu": "8", "memory": "155Gi"}
    assert trainer["resourcesPerNode"] == {"limits": limits}


def test_a_pytorchjob_has_one_master_and_the_other_nodes_as_workers():
    job = manifests(plan_of(TWO_NODES, DDP, by("torchrun")))["pytorchjob.yaml"]
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {name: each["replicas"] for name, each in replicas.items()} == {"Master": 1, "Worker": 1}
    assert replicas["Master"]["template"] == replicas["Worker"]["template"]
    alone = manifests(plan_of(DDP, by("torchrun")))["pytorchjob.yaml"]
    assert list(alone["spec"]["pytorchReplicaSpecs"]) == ["Master"]


@pytest.mark.parametrize(
    ("vendor", "torch", "resource", "image"),
    [
        ("nvidia", "2.13.0+cu126", "nvidia.com/gpu", "pytorch/pytorch:2.13.0-cuda12.6-cudnn9-"),
        ("intel", None, "habana.ai/gaudi", "vault.habana.ai/gaudi-docker/"),
        ("amd", "2.13.0+rocm7.2", "amd.com/gpu", None),
    ],
)
def test_devices_and_image_are_of_the_maker(vendor, torch, resource, image):
    plan = plan_of(VOLUME, {"devices.vendor": vendor, "job.torch": torch})
    files, faults = emitted("kubeflow", plan)
    assert faults == (set() if image else {"E0905"})
    trainer = yaml.safe_load(files["trainjob.yaml"].text)["spec"]["trainer"]
    assert trainer["resourcesPerNode"]["limits"][resource] == "8"
    assert trainer.get("image", "").startswith(image or "")
    assert "nvidia" not in str(trainer["resourcesPerNode"]) or vendor == "nvidia"


def test_a_job_waits_in_its_queue_and_ends_when_it_is_told():
    asked = {"job.queue": "gpu", "job.namespace": "team", "job.time_limit": 7200}
    found = manifests(plan_of(asked, VOLUME))
    for job in (found["trainjob.yaml"], found["pytorchjob.yaml"]):
        labels = {"kueue.x-k8s.io/queue-name": "gpu"}
        assert job["metadata"] == {"name": "invoices", "namespace": "team", "labels": labels}
    assert found["trainjob.yaml"]["spec"]["activeDeadlineSeconds"] == 7200
    assert found["pytorchjob.yaml"]["spec"]["runPolicy"]["activeDeadlineSeconds"] == 7200
    assert emitted("kubeflow", plan_of(asked, VOLUME), "2.1.0")[1] == {"E0905"}
    unasked = manifests(plan_of())["trainjob.yaml"]["spec"]
    assert "activeDeadlineSeconds" not in unasked


HUB = {"data.train": "trl-lib/Capybara", "launch.script": "trl.scripts.sft --config trl/sft.yaml"}


def test_what_a_pod_lacks_is_told_before_it_is_started():
    assert emitted("kubeflow", plan_of())[1] == {"E0905"}
    assert emitted("kubeflow", plan_of(VOLUME))[1] == set()
    assert emitted("kubeflow", plan_of(HUB))[1] == {"output-not-kept"}
    assert emitted("kubeflow", plan_of(IMAGE))[1] == {"output-not-kept"}
    beyond = {"data.train": "../../train.jsonl"}
    assert emitted("kubeflow", plan_of(VOLUME, beyond))[1] == {"E0905"}


def test_the_bundle_s_files_come_to_where_the_run_starts(tmp_path):
    """The ConfigMap as a directory, as the kubelet mounts it, and the container's own lines."""
    plan = plan_of(VOLUME, DDP, by("torchrun"), {"job.packages": ()})
    texts = {"trl/sft.yaml": "lr: 1\n", "run.sh": "exit\n", "kubeflow/trainjob.yaml": "x: 1\n"}
    held = yaml.safe_load(bundle_yaml(plan, texts).text)
    volumes = manifests(plan)["pytorchjob.yaml"]["spec"]["pytorchReplicaSpecs"]["Master"]
    names = [v.get("configMap", {}).get("name") for v in volumes["template"]["spec"]["volumes"]]
    assert held["metadata"]["name"] in names
    (tmp_path / "bundle").mkdir()
    for key, text in held["data"].items():
        assert re.fullmatch(r"[-._a-zA-Z0-9]+", key)
        (tmp_path / "bundle" / key).write_text(text)
    trainer = manifests(plan)["trainjob.yaml"]["spec"]["trainer"]
    run_in(in_pod(trainer["args"][0]), tmp_path, {})
    root = tmp_path / "workspace" / "invoices"
    found = {p.relative_to(root).as_posix(): p.read_text() for p in root.rglob("*") if p.is_file()}
    assert found == {"trl/sft.yaml": "lr: 1\n", "run.sh": "exit\n"}


def in_pod(text: str) -> str:
    """What the kubelet hands on (kubernetes expansion/expand.go): `$$` is `$`, `$(X)` is X."""
    assert "$(" not in text.replace("$$", "")
    return text.replace("$$", "$")


def run_in(text: str, folder: Path, env: Mapping[str, str]) -> list[str]:
    """The words that a shell text starts a launcher with; a pod's directories lie in `folder`."""
    for name in ("bundle", "workspace"):
        (folder / name).mkdir(exist_ok=True)
        text = text.replace(f" /{name}/", f" {folder}/{name}/")
    if not any((folder / "bundle").iterdir()):
        (folder / "bundle" / "trl__sft.yaml").write_text("lr: 1\n")
    stub = _STUB.format(python=sys.executable)
    for name in ("python", "torchrun", "deepspeed", "accelerate", "pip"):
        (folder / name).write_text("#!/bin/sh\n" if name == "pip" else stub)
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


@pytest.mark.parametrize("file", PODS)
def test_deepspeed_s_launcher_counts_the_nodes_of_a_host_file(file, tmp_path):
    job = manifests(plan_of(TWO_NODES))[file]["spec"]
    held = job.get("trainer") or _container(job)
    words = run_in(in_pod(held["args"][0]), tmp_path, PODS[file])
    assert {"--no_ssh", "--node_rank=1", "--master_addr=a", "--num_nodes=2"} <= set(words)
    (hosts,) = (Path(word.partition("=")[2]) for word in words if "--hostfile" in word)
    assert hosts.read_text() == "node-0 slots=8\nnode-1 slots=8\n"


def _container(job: Mapping[str, Any]) -> Any:
    (held,) = job["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    return held


# ── SkyPilot ─────────────────────────────────────────────────────────────────────────────────────

SXM = {"devices.model": "a100-sxm4-80g"}


def task(*changes: Mapping[str, Any]) -> dict[str, Any]:
    files, faults = emitted("skypilot", plan_of(SXM, *changes))
    assert faults == set()
    return yaml.safe_load(files["task.yaml"].text)


def test_a_task_asks_for_accelerators_by_skypilot_s_names():
    found = task(TWO_NODES, DDP, by("torchrun"), {"devices.host_budget": 1360 * GIB})
    assert found["name"] == "invoices"
    assert found["resources"] == {"accelerators": {"A100-80GB": 8}, "memory": "155+"}
    assert found["num_nodes"] == 2
    assert "E0901" in emitted("skypilot", plan_of({"devices.model": "titan-xp"}))[1]


def test_a_task_says_where_machines_are_rented_and_what_they_start_in():
    asked = {"job.infra": "aws/us-east-1", "job.spot": True, "job.image": "me/image:1"}
    found = task(asked)
    wanted = {"infra": "aws/us-east-1", "use_spot": True, "image_id": "docker:me/image:1"}
    assert found["resources"].items() >= wanted.items()
    assert "setup" not in found
    old = emit(TARGETS["skypilot"], plan_of(SXM, asked), Version("0.9.3"))[1]
    assert {each.id for each in old} == {"E0901"}


@pytest.mark.parametrize(
    ("torch", "line"),
    [
        ("2.13.0+cu130", "torch==2.13.0 torchvision"),
        (
            "2.13.0+cu126",
            "torch==2.13.0+cu126 torchvision --index-url https://download.pytorch.org/whl/cu126",
        ),
        (
            "2.13.0+rocm7.2",
            "torch==2.13.0+rocm7.2 torchvision --index-url https://download.pytorch.org/whl/rocm7.2",
        ),
    ],
)
def test_a_task_installs_the_torch_that_has_the_devices_kernels(torch, line):
    setup = task({"job.torch": torch})["setup"]
    installed = [each for each in setup.splitlines() if each.startswith("pip")]
    assert installed[0] == f"pip install --quiet {line}"
    assert "transformers==5.23.0" in installed[1]


def test_a_limit_that_no_task_has_is_told():
    assert emitted("skypilot", plan_of(SXM, {"job.time_limit": 3600}))[1] == {"time-not-bounded"}
    assert emitted("skypilot", plan_of(SXM))[1] == set()


def test_files_beside_the_bundle_are_mounted_where_the_run_looks_for_them():
    data = {"data.train": "../train.jsonl", "launch.script": "../train.py --lr 1"}
    assert task(data)["file_mounts"] == {
        "~/train.py": "../train.py",
        "~/train.jsonl": "../train.jsonl",
    }
    theirs = {"launch.script": "../repo/finetune/finetune.py", "data.train": "../data/a.jsonl"}
    assert task(theirs, {"data.images": 1})["file_mounts"] == {
        "~/repo/finetune": "../repo/finetune",
        "~/data": "../data",
    }
    assert "file_mounts" not in task()
    beyond = {"data.train": "../../train.jsonl"}
    assert emitted("skypilot", plan_of(SXM, beyond))[1] == {"E0905"}


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed", "accelerate"])
def test_the_second_machine_joins_the_first(launcher, tmp_path):
    changes = {} if launcher == "deepspeed" else DDP
    text = task(TWO_NODES, changes, by(launcher, "train.py 'a b'"))["run"]
    text = text.replace("if ! python", "if ! true python")
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
    assert found["job.host_memory"] == 32 * GIB


# ── every one of them ────────────────────────────────────────────────────────────────────────────

MANAGERS = ("slurm", "kubeflow", "skypilot")


@pytest.mark.parametrize("target", MANAGERS)
@given(plan=plans())
def test_every_slot_that_is_said_comes_back(target, plan):
    chosen = TARGETS[target]
    version = Version(chosen.latest)
    artifacts, faults = emit(chosen, plan, version)
    told = {"time-not-known", "time-not-bounded", "output-not-kept"}
    assert {each.id for each in faults} <= {"E0901", "E0905", *told}
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
