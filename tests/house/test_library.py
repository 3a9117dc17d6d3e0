"""The Python library: as the command line, as objects, silent; equal inputs give equal bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import tunec

ROOT = Path(__file__).parents[2]
PATH = ROOT / "examples/minicpm-v-2_6-lora/spec.yaml"
TEXT = PATH.read_text("utf-8")


def test_plan_takes_path_text_and_data_alike():
    by_path = tunec.plan(PATH).plan
    assert by_path is not None
    assert tunec.plan(str(PATH)).plan == by_path
    assert tunec.plan(TEXT).plan == by_path
    data = yaml.safe_load(TEXT)
    data["train"]["learning_rate"] = 1e-5  # YAML 1.1 has it as a text
    assert tunec.plan(data).plan == by_path


def test_hardware_and_overrides_hold():
    planned = tunec.plan(PATH, hardware="h100-x8", overrides=["batch.global=32"])
    assert planned.plan is not None
    assert planned.plan.devices.per_node == 8
    assert planned.plan.batch.global_ == 32


def test_compile_writes_what_the_command_writes(capsys):
    from tunec.__main__ import main

    found = tunec.compile(PATH, targets=["deepspeed"])
    assert capsys.readouterr() == ("", "")
    (artifact,) = found.artifacts["deepspeed"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["tunec", "compile", str(PATH), "--target", "deepspeed"])
        assert main() == 0
    assert artifact.text == capsys.readouterr().out
    assert artifact.values == json.loads(artifact.text)


def test_compile_takes_the_specs_own_targets():
    assert set(tunec.compile(PATH).artifacts) == {"deepspeed", "huggingface", "launch"}


def test_explain_goes_down_to_the_spec():
    assert f"{PATH}:" in tunec.explain(tunec.plan(PATH), "adapter.rank")


def test_explain_of_no_slot_raises():
    with pytest.raises(KeyError):
        tunec.explain(tunec.plan(PATH), "no.slot")


def test_fault_of_a_spec_is_a_diagnostic():
    planned = tunec.plan("tunec: 1\nmodle: llama-3.1-8b\n")
    assert not planned.ok
    assert planned.plan is None
    assert all(isinstance(each, tunec.Diagnostic) for each in planned.diagnostics)
    compiled = tunec.compile("tunec: 1\nmodle: llama-3.1-8b\n", targets=["deepspeed"])
    assert (compiled.ok, dict(compiled.artifacts)) == (False, {})


def test_missing_file_is_a_diagnostic():
    assert not tunec.plan("no-such-file.yaml").ok


def test_no_target_at_all_raises():
    with pytest.raises(tunec.NoTarget):
        tunec.compile(ROOT / "examples/five-lines/spec.yaml")


def test_unknown_target_raises():
    with pytest.raises(tunec.UnknownTarget):
        tunec.compile(PATH, targets=["deepsped"])


def test_every_public_name_is_there():
    for name in tunec.__all__:
        assert getattr(tunec, name) is not None
        assert name in dir(tunec)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tunec.nothing


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
