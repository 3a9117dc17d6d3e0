"""The emitted train.sbatch on a real Slurm: it is scheduled, started on each node, and meets."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from slurm_here import MEMORY, Slurm, fields
from tests.plans import DDP, plan_of

from tunec.compiler.emit import emit
from tunec.compiler.ir.plan import Plan
from tunec.targets.registry import TARGETS

MINUTES = 600.0
BIN = Path(sys.executable).parent

TRAIN = """\
import json, os, sys
from pathlib import Path
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_JOB_NAME", "MASTER_ADDR", "GREETING", "HOME_OF")
found = {name: os.environ.get(name) for name in names}
found |= {"sum": int(total), "argv": sys.argv[1:], "cwd": os.getcwd()}
Path(f"rank-{dist.get_rank()}.json").write_text(json.dumps(found))
dist.destroy_process_group()
"""

SPREAD = {
    **DDP,
    "devices.nodes": 2,
    "devices.per_node": 2,
    "parallel.world": 4,
    "parallel.data": 4,
    "runtime.dataloader_workers": 1,
    "launch.environment": (("GREETING", "hello '$USER'"),),
    "launch.script": "train.py --lr 'a b'",
}
SETUP = {"job.setup": (f'export PATH="{BIN}:$PATH"', 'export HOME_OF="$NOBODY_SETS_THIS"')}
"""The environment, as a user activates it; `$NOBODY_SETS_THIS` is not set."""


def bundle(folder: Path, plan: Plan) -> Path:
    """The emitted files below `slurm`, and a script beside them that joins its ranks."""
    target = TARGETS["slurm"]
    artifacts, faults = emit(target, plan, Version(target.latest), header=("tunec",))
    assert not faults
    for each in artifacts:
        path = folder / "slurm" / each.name
        path.parent.mkdir(exist_ok=True)
        path.write_text(each.text)
    (folder / "train.py").write_text(TRAIN)
    return folder


def ranks(folder: Path) -> list[dict[str, Any]]:
    found = sorted(folder.glob("rank-*.json"))
    return [json.loads(each.read_text()) for each in found]


def written(folder: Path) -> str:
    return "\n".join(each.read_text() for each in folder.glob("*.out"))


NIGHTLY = pytest.mark.nightly
"""A launcher's command is one, whoever starts it: in each run it meets one manager, here or in
test_pods.py, and each night both."""


@pytest.mark.parametrize(
    "launcher", ["torchrun", pytest.param("deepspeed", marks=NIGHTLY), "accelerate"]
)
def test_four_ranks_on_two_nodes_meet(slurm: Slurm, tmp_path: Path, launcher: str) -> None:
    pytest.importorskip(launcher if launcher != "torchrun" else "torch")
    root = bundle(tmp_path, plan_of(SPREAD, SETUP, {"launch.launcher": launcher}))
    said = slurm.submit("slurm/train.sbatch", "--more", cwd=root, seconds=MINUTES)
    assert said.status == 0, said.err + written(root)
    found = ranks(root)
    assert [(each["RANK"], each["WORLD_SIZE"], each["sum"]) for each in found] == [
        (str(rank), "4", 4) for rank in range(4)
    ]
    assert [each["LOCAL_RANK"] for each in found] == ["0", "1", "0", "1"]
    for each in found:
        own = [word for word in each["argv"] if not word.startswith("--local_rank")]
        assert own == ["--lr", "a b", "--more"]
        assert (each["GREETING"], each["HOME_OF"]) == ("hello '$USER'", "")
        assert (each["SLURM_JOB_NAME"], each["cwd"]) == ("invoices", str(root))


def test_one_process_starts_on_its_device(slurm: Slurm, tmp_path: Path) -> None:
    alone = {
        "parallel.engine": "none",
        "parallel.world": 1,
        "parallel.data": 1,
        "devices.nodes": 1,
        "devices.per_node": 1,
        "launch.launcher": "python",
    }
    root = bundle(tmp_path, plan_of(SPREAD, SETUP, alone))
    (root / "train.py").write_text(
        "import os; open('seen', 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    said = slurm.submit("slurm/train.sbatch", cwd=root, seconds=MINUTES)
    assert said.status == 0, said.err + written(root)
    assert (root / "seen").read_text() == "0"


def test_the_job_holds_what_the_plan_asks_for(slurm: Slurm, tmp_path: Path) -> None:
    asked = {"job.queue": "gpu", "job.host_memory": 155 * 2**30, "job.duration": 86_400 + 3600}
    root = bundle(tmp_path, plan_of(SPREAD, SETUP, asked))
    said = slurm.run("sbatch", "--hold", "--parsable", "slurm/train.sbatch", cwd=root)
    assert said.status == 0, said.err
    job = said.out.strip()
    held = fields(slurm.run("scontrol", "show", "job", job, cwd=root).out)
    slurm.run("scancel", job, cwd=root)
    assert (held["JobName"], held["Partition"]) == ("invoices", "gpu")
    assert (held["TimeLimit"], held["MinMemoryNode"]) == ("1-01:00:00", "155G")
    assert (held["NumNodes"], held["TresPerNode"]) == ("2-2", "gres:gpu:2")
    assert held["WorkDir"] == str(root)


def test_what_no_node_can_give_is_refused(slurm: Slurm, tmp_path: Path) -> None:
    """As all of a node's memory was: RealMemory lies below it."""
    root = bundle(tmp_path, plan_of(SPREAD, {"job.host_memory": (MEMORY + 1024) * 2**20}))
    said = slurm.run("sbatch", "slurm/train.sbatch", cwd=root)
    assert said.status != 0
    assert "Memory specification can not be satisfied" in said.err
