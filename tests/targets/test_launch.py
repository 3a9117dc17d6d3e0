"""launch.sh run by a real bash, its flags parsed by the real launchers, and read back."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from tests.plans import DDP, FP16, ONE, ZERO_3, plan_of

from tunec.compiler.emit import emit
from tunec.compiler.ir.ledger import Ledger
from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_plain, read
from tunec.targets.launch.script import found_in
from tunec.targets.launch.target import TARGET
from tunec.targets.launch.words import commands

TWO_NODES = {"devices.nodes": 2, "parallel.world": 16, "parallel.data": 16, "batch.global": 128}
NUMBERS = {
    "devices.per_node": 2,
    "devices.visible": ("2", "3"),
    "parallel.world": 2,
    "parallel.data": 2,
    "batch.global": 16,
    "launch.environment": (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", "2,3")),
}
UUIDS = {
    **NUMBERS,
    "devices.visible": ("GPU-11", "GPU-22"),
    "launch.environment": (("CUDA_VISIBLE_DEVICES", "GPU-11,GPU-22"),),
}
AWKWARD = 'it\'s "quoted" $HOME `id` \\ #;&|*'


def by(launcher: str, script: str = "train.py") -> Mapping[str, Any]:
    return {"launch.launcher": launcher, "launch.script": script}


CASES: Mapping[str, Plan] = {
    "one process": plan_of(ONE),
    "torchrun": plan_of(DDP),
    "torchrun on two nodes": plan_of(DDP, TWO_NODES),
    "torchrun, chosen devices": plan_of(DDP, UUIDS),
    "deepspeed": plan_of(),
    "deepspeed on two nodes": plan_of(TWO_NODES),
    "deepspeed, chosen devices": plan_of(NUMBERS),
    "deepspeed by torchrun": plan_of(UUIDS, by("torchrun")),
    "accelerate": plan_of(DDP, by("accelerate")),
    "accelerate in fp16": plan_of(FP16, DDP, by("accelerate")),
    "accelerate on two nodes": plan_of(TWO_NODES, ZERO_3, by("accelerate")),
    "accelerate, one process": plan_of(ONE, by("accelerate")),
    "idle devices": plan_of({"parallel.world": 4, "parallel.data": 4, "batch.global": 32}),
    "module": plan_of(DDP, by("torchrun", "trl.scripts.sft --config sft.yaml")),
    "module by deepspeed": plan_of(by("deepspeed", "trl.scripts.sft --config sft.yaml")),
    "awkward values": plan_of(
        DDP,
        by("torchrun", "'my script.py' --name 'a b'"),
        {"launch.environment": (("NOTE", AWKWARD), ("EMPTY", ""))},
    ),
    "deprecated fp16": plan_of(
        FP16,
        {
            "precision.deprecated_fp16": True,
            "launch.environment": (("DS_ALLOW_DEPRECATED_FP16", "1"),),
        },
    ),
}
every_case = pytest.mark.parametrize("name", CASES)


def written(name: str) -> dict[str, str]:
    artifacts, diagnostics = emit(TARGET, CASES[name], Version(TARGET.latest), header=("tunec",))
    assert diagnostics == ()
    return {each.name: each.text for each in artifacts}


_STUB = """#!{python}
import json, os, sys
keys = {keys!r}
print(json.dumps({{"argv": sys.argv, "env": {{k: os.environ.get(k) for k in keys}}}}))
"""


def started(name: str, folder: Path, **cluster: str) -> dict[str, Any]:
    """What the script really starts: every launcher is a stub that tells how it was called."""
    keys = [key for key, _ in CASES[name].launch.environment]
    tools = folder / "tools"
    tools.mkdir()
    for launcher in ("python", "torchrun", "deepspeed", "accelerate"):
        stub = tools / launcher
        stub.write_text(_STUB.format(python=sys.executable, keys=keys))
        stub.chmod(0o755)
    for file, text in written(name).items():
        (folder / file).write_text(text)
    done = subprocess.run(
        ["bash", folder / "launch.sh", "--more", "x y"],
        env={"PATH": f"{tools}:{os.environ['PATH']}", **cluster},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


NODE = {"NODE_RANK": "1", "MASTER_ADDR": "node0"}
PORT = 29511


@every_case
def test_bash_starts_the_launcher_with_the_variables_and_passes_arguments_on(name, tmp_path):
    call = started(name, tmp_path, **NODE)
    plan = CASES[name]
    assert Path(call["argv"][0]).name == plan.launch.launcher
    assert call["argv"][-2:] == ["--more", "x y"]
    assert call["env"] == dict(plan.launch.environment)


@pytest.mark.parametrize("missing", NODE)
def test_several_nodes_need_to_know_which_they_are(missing, tmp_path):
    with pytest.raises(AssertionError, match=missing):
        started(
            "torchrun on two nodes", tmp_path, **{k: v for k, v in NODE.items() if k != missing}
        )


@pytest.mark.parametrize(
    ("visible", "flag"),
    [
        ({}, "--num_gpus=8"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "--num_gpus=8"),
        ({"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, "--include=localhost:4,5,6,7"),
    ],
)
def test_deepspeed_takes_the_devices_that_the_user_makes_visible(visible, flag, tmp_path):
    assert started("deepspeed", tmp_path, **visible)["argv"][1:3] == [flag, "train.py"]


@pytest.mark.parametrize("name", ["deepspeed", "deepspeed, chosen devices", "accelerate"])
def test_one_node_leaves_the_port_to_its_launcher(name, tmp_path):
    assert not any("_port=" in word for word in started(name, tmp_path)["argv"])


def test_torchrun_takes_a_free_port_on_one_node(tmp_path):
    argv = started("torchrun", tmp_path, MASTER_PORT=str(PORT))["argv"]
    assert "--standalone" in argv
    assert not any("_port=" in word for word in argv)


def test_several_nodes_meet_at_the_usual_port(tmp_path):
    argv = started("torchrun on two nodes", tmp_path, **NODE)["argv"]
    assert "--master_port=29500" in argv


PARSERS = """
import json, sys
import torch.distributed.run as run
calls = json.load(open(sys.argv[1]))
out = {}
for name, (launcher, argv) in calls.items():
    if launcher == "torchrun":
        a = run.get_args_parser().parse_args(argv)
        out[name] = dict(nodes=a.nnodes, per_node=a.nproc_per_node, script=a.training_script,
                         rest=a.training_script_args, module=a.module, rank=a.node_rank,
                         address=a.master_addr, port=a.master_port)
    elif launcher == "deepspeed":
        from deepspeed.launcher.runner import parse_args
        a = parse_args(argv)
        out[name] = dict(nodes=a.num_nodes, per_node=a.num_gpus, script=a.user_script,
                         rest=a.user_args, module=a.module, rank=a.node_rank, include=a.include,
                         address=a.master_addr, port=a.master_port, no_ssh=a.no_ssh)
    elif launcher == "accelerate":
        from accelerate.commands.config.config_args import load_config_from_file
        from accelerate.commands.launch import launch_command_parser
        a = launch_command_parser().parse_args(argv[1:])
        c = load_config_from_file(a.config_file)
        out[name] = dict(nodes=c.num_machines, world=c.num_processes, script=a.training_script,
                         rest=a.training_script_args, rank=a.machine_rank, module=a.module,
                         port=a.main_process_port,
                         kind=str(c.distributed_type), precision=str(c.mixed_precision),
                         deepspeed=c.deepspeed_config)
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    """What the parsers of torch, deepspeed and accelerate make of how they are started."""
    pytest.importorskip("deepspeed")
    folder = tmp_path_factory.mktemp("launch")
    calls = {}
    for name in CASES:
        place = folder / name.replace(" ", "_").replace(",", "")
        place.mkdir()
        argv = started(name, place, **NODE, MASTER_PORT=str(PORT))["argv"]
        calls[name] = (Path(argv[0]).name, argv[1:])
    (folder / "calls.json").write_text(json.dumps(calls))
    done = subprocess.run(
        [sys.executable, "-c", PARSERS, folder / "calls.json"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_torchrun_understands_it(parsed):
    one, two = parsed["torchrun"], parsed["torchrun on two nodes"]
    assert (one["nodes"], one["per_node"], one["script"]) == ("1", "8", "train.py")
    assert (two["nodes"], two["per_node"], two["rank"]) == ("2", "8", 1)
    assert (two["address"], two["port"]) == ("node0", PORT)
    module = parsed["module"]
    assert (module["module"], module["script"]) == (True, "trl.scripts.sft")
    assert module["rest"] == ["--config", "sft.yaml", "--more", "x y"]
    assert parsed["awkward values"]["script"] == "my script.py"


def test_deepspeed_understands_it(parsed):
    one, two = parsed["deepspeed"], parsed["deepspeed on two nodes"]
    assert (one["per_node"], one["include"], one["script"]) == (8, "", "train.py")
    assert (two["nodes"], two["per_node"], two["rank"], two["no_ssh"]) == (2, 8, 1, True)
    chosen = parsed["deepspeed, chosen devices"]
    assert (chosen["include"], chosen["per_node"]) == ("localhost:2,3", -1)
    assert parsed["idle devices"]["per_node"] == 4
    assert parsed["module by deepspeed"]["module"] is True
    assert {each["port"] for each in (one, two, chosen)} == {PORT}


def test_accelerate_understands_it(parsed):
    one, two = parsed["accelerate"], parsed["accelerate on two nodes"]
    assert (one["world"], one["kind"], one["precision"]) == (8, "DistributedType.MULTI_GPU", "bf16")
    assert (two["nodes"], two["world"], two["rank"]) == (2, 16, 1)
    assert {each["port"] for each in (one, two)} == {PORT}
    assert two["deepspeed"]["deepspeed_config_file"] == "ds_config.json"
    assert two["deepspeed"]["zero3_init_flag"] is True
    assert parsed["accelerate in fp16"]["precision"] == "fp16"
    assert parsed["accelerate, one process"]["kind"] == "DistributedType.NO"


def test_accelerate_s_file_names_no_key_of_ds_config_beside_it():
    """MC025: gradient accumulation, stage, offload and precision stand in ds_config.json alone."""
    text = written("accelerate on two nodes")["accelerate.yaml"]
    assert "mixed_precision" not in text
    assert "zero_stage" not in text


# ── what cannot be started ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (UUIDS, "takes devices by number only"),
        ({**TWO_NODES, "devices.visible": tuple("01234567")}, "on several nodes"),
    ],
)
def test_deepspeed_s_launcher_cannot_choose_every_device(changes, why):
    environment = (("CUDA_VISIBLE_DEVICES", ",".join(changes["devices.visible"])),)
    plan = plan_of(changes, {"launch.environment": environment})
    _, faults = emit(TARGET, plan, Version(TARGET.latest))
    assert "E0905" in {each.id for each in faults}
    fault = next(each for each in faults if each.id == "E0905")
    assert why in fault.message
    assert "torchrun" in fault.help


def test_an_environment_that_hides_other_devices_than_planned_is_an_error():
    plan = plan_of(DDP, NUMBERS, {"launch.environment": (("CUDA_VISIBLE_DEVICES", "0,1"),)})
    _, (fault,) = emit(TARGET, plan, Version(TARGET.latest))
    assert (fault.id, fault.labels[0].path) == ("E0901", "devices.visible")


# ── scripts of others ────────────────────────────────────────────────────────────────────────────

TORCHRUN = """#!/bin/bash

GPUS_PER_NODE=8
NNODES=1
NODE_RANK=0
MASTER_ADDR=localhost
MASTER_PORT=6001
export NCCL_DEBUG=info   # loud
MODEL="org/model"

DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE
"

torchrun --nproc_per_node $GPUS_PER_NODE --nnodes=$NNODES \\
    --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT finetune.py  \\
    --model_name_or_path $MODEL \\
    --bf16 true
"""
DEEPSPEED = """
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM='false'
NCCL_IB_DISABLE=0 deepspeed --master_port 16666 --include localhost:0,3 finetune.py --fp16 "$@"
"""


def slots_of(text: str) -> dict[str, Any]:
    documents = {"launch.sh": found_in(text, "run.sh")}
    ledger = Ledger().add(read(TARGET, documents, Version(TARGET.latest)))
    return {each.slot: each.value for each in ledger.winners()}


def test_a_torchrun_script_is_read():
    found = slots_of(TORCHRUN)
    assert found["launch.launcher"] == "torchrun"
    assert found["parallel.world"] == 8
    assert found["launch.environment"] == (("NCCL_DEBUG", "info"),)
    assert found["launch.script"] == "finetune.py --model_name_or_path org/model --bf16 true"


def test_a_deepspeed_command_is_read_with_its_variables():
    found = slots_of(DEEPSPEED)
    assert found["launch.launcher"] == "deepspeed"
    assert found["parallel.world"] == 2
    assert found["devices.visible"] == ("0", "3")
    assert found["launch.script"] == "finetune.py --fp16"
    assert dict(found["launch.environment"]) == {
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "NCCL_IB_DISABLE": "0",
    }


@pytest.mark.parametrize(
    ("line", "launcher", "script"),
    [
        ("python train.py", "python", "train.py"),
        ("CUDA_VISIBLE_DEVICES=0 python3.11 -u -m trl.scripts.sft", "python", "trl.scripts.sft"),
        ("/opt/bin/torchrun --standalone --nproc-per-node 2 a.py", "torchrun", "a.py"),
        ("python -m torch.distributed.run --nproc_per_node=2 a.py", "torchrun", "a.py"),
        ("accelerate launch --num_processes 4 a.py", "accelerate", "a.py"),
        ("exec deepspeed --num_gpus=4 a.py", "deepspeed", "a.py"),
    ],
)
def test_launchers_are_told_apart(line, launcher, script):
    found = slots_of(line)
    assert (found["launch.launcher"], found["launch.script"]) == (launcher, script)


def test_spans_point_at_the_words():
    found = found_in(TORCHRUN, "run.sh")
    assert str(found["environment.NCCL_DEBUG"].span) == "run.sh:8:8"
    assert str(found["per_node"].span).startswith("run.sh:15:")


def test_a_variable_that_nobody_sets_is_left_as_it_is_written():
    assert "per_node" not in found_in("torchrun --nproc_per_node=$GPUS a.py", "run.sh")
    assert found_in("torchrun --nproc_per_node=${GPUS:-4} a.py", "run.sh")["per_node"].value == 4


def test_words_are_bash_s_own():
    """Quotes, escapes and comments come apart as bash takes them apart."""
    line = r"""a 'b c' "d \"e\" f" g\ h i"j"'k' '' "\\" # no"""
    ours = [word.text for words in commands(line, "x") for word in words]
    code = f"for word in {line}\ndo printf '%s\\0' \"$word\"; done"
    said = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert ours == said.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    "text", ["'", '"', "${", "export", "=", "\\", "torchrun", "exec", "$(", "a=b"]
)
def test_broken_scripts_are_read_without_a_fault(text):
    slots_of(text)


def test_an_accelerate_file_of_another_is_read():
    document = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU",
        "mixed_precision": "bf16",
        "num_machines": 2,
        "num_processes": 16,
    }
    found = read(TARGET, {"accelerate.yaml": found_plain(document)}, Version(TARGET.latest))
    values = {each.slot: each.value for each in found}
    assert values["parallel.world"] == 16
    assert values["devices.per_node"] == 8
    assert values["parallel.engine"] == "ddp"
    assert values["states.autocast"] is True
