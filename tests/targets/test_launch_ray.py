"""A program of several nodes that Ray starts: the script of each node, run by a real bash.

`ray` and `sleep` are stubs; with ray 2.50.1 itself the same text joined two nodes of eight devices,
the program's exit code came out of the first, and the second ended with it.
"""

import os
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version
from tests.plans import DDP, plan_of
from tests.targets.test_launch import TWO_NODES, by

from tunec.compiler.emit import emit
from tunec.targets.launch.target import TARGET
from tunec.targets.registry import TARGETS

STUBS = {
    "ray": """#!/bin/bash
if [ "$1" = health-check ]; then test -e head; exit; fi
echo "$*" >> started
trap 'exit 0' TERM
if [ "$2" = --head ]; then trap 'rm head; exit 0' TERM; touch head; fi
while true; do sleep 1; done
""",
    "sleep": "#!/bin/bash\nexec /bin/sleep 0.02\n",
    "python": """#!/bin/bash
if [ "$1" = -c ]; then echo "$2" > waited; exit; fi
until [ "$(wc -l < started)" = 2 ]; do sleep 1; done
echo "${RAY_ADDRESS} $*" >> program
exit 3
""",
}


def node(folder: Path, rank: int) -> subprocess.Popen[bytes]:
    path = f"{folder / 'tools'}:{os.environ['PATH']}"
    cluster = {"NODE_RANK": str(rank), "MASTER_ADDR": "node0", "MASTER_PORT": "6379"}
    return subprocess.Popen(["bash", "launch.sh", "x=1"], cwd=folder, env={"PATH": path, **cluster})


def test_one_node_starts_ray_and_the_program_and_the_others_end_with_it(tmp_path):
    plan = plan_of(DDP, TWO_NODES, by("python", "verl.trainer.main_ppo --config-name a"))
    artifacts, diagnostics = emit(TARGET, plan, Version(TARGET.latest), header=("tunec",))
    assert diagnostics == ()
    (tmp_path / "launch.sh").write_text(artifacts[0].text)
    (tmp_path / "tools").mkdir()
    for name, text in STUBS.items():
        (tmp_path / "tools" / name).write_text(text)
        (tmp_path / "tools" / name).chmod(0o755)
    other, first = node(tmp_path, 1), node(tmp_path, 0)
    assert first.wait() == 3
    assert other.wait() == 0
    assert sorted((tmp_path / "started").read_text().splitlines()) == [
        "start --address=node0:6379 --num-gpus=8 --block",
        "start --head --port=6379 --num-gpus=8 --block",
    ]
    ran = "node0:6379 -m verl.trainer.main_ppo --config-name a x=1\n"
    assert (tmp_path / "program").read_text() == ran
    assert '.get("GPU", 0) < 16' in (tmp_path / "waited").read_text()
    assert not (tmp_path / "head").exists()


@pytest.mark.parametrize("nodes", [1, 2])
def test_one_node_needs_no_ray_of_its_own(nodes):
    many = TWO_NODES if nodes == 2 else {}
    artifacts, _ = emit(TARGET, plan_of(DDP, many, by("python")), Version(TARGET.latest))
    assert ("ray start" in artifacts[0].text) is (nodes == 2)


@pytest.mark.parametrize("name", ["launch", "slurm"])
def test_what_a_script_exports_for_ray_is_not_the_spec_s(name):
    target = TARGETS[name]
    artifacts, _ = emit(target, plan_of(DDP, TWO_NODES, by("python")), Version(target.latest))
    assert "export RAY_ADDRESS" in artifacts[0].text
    assert not target.files[0].parse(artifacts[0].text)["environment"]
