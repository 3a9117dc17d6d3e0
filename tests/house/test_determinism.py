"""Equal inputs give equal bytes, whatever the machine's locale, hash order and clock are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SURROUNDINGS = (
    {"PYTHONHASHSEED": "0", "LANG": "C", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "1", "LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"},
    {"PYTHONHASHSEED": "4711", "PYTHONUTF8": "0", "LANG": "de_DE.ISO-8859-1", "COLUMNS": "40"},
    {"PYTHONHASHSEED": "7", "CUDA_VISIBLE_DEVICES": "3", "WORLD_SIZE": "64", "LOCAL_RANK": "2"},
)


def output(arguments: list[str], surroundings: dict[str, str]) -> bytes:
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "tunec", *arguments],
        capture_output=True,
        cwd=ROOT,
        env={**bare, **surroundings},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "examples/minicpm-v-2_6-lora/spec.yaml", "--format", "json"],
        ["plan", "examples/glm-4v-9b-lora/spec.yaml"],
        ["compile", "examples/minicpm-v-2_6-lora/spec.yaml", "--format", "json"],
        ["explain", "examples/glm-4v-9b-lora/spec.yaml", "activation_checkpointing.mode"],
        ["catalog", "clusters"],
    ],
    ids=" ".join,
)
def test_output_is_the_same_everywhere(arguments):
    first, *others = [output(arguments, each) for each in SURROUNDINGS]
    assert len(first) > 100
    assert others == [first] * len(others)
