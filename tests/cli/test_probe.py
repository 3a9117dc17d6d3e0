"""`tunec probe`, as a user runs it, with a driver that is a script."""

import pytest
import yaml
from tests.cli.shell import FIVE

DRIVER = """\
#!/bin/sh
case "$*" in
  *memory.reserved*) echo 'Field "memory.reserved" is not a valid field to query.'; exit 2 ;;
  --query-gpu=*) for each in a b; do echo "NVIDIA A100-SXM4-80GB, GPU-$each, 81920"; done ;;
  topo*) printf '\\tGPU0\\tGPU1\\nGPU0\\t X \\tNV12\\nGPU1\\tNV12\\t X \\n' ;;
esac
"""


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """An old driver with two devices, and nothing else on the path."""
    script = tmp_path / "bin/nvidia-smi"
    script.parent.mkdir()
    script.write_text(DRIVER)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent))


def test_what_it_writes_is_hardware_that_a_spec_runs_on(tunec, tmp_path, driver):
    path = tmp_path / "here.yaml"
    assert tunec("probe", "--name", "here", "-o", path).code == 0
    planned = tunec("plan", FIVE, "--hardware", path, "--format", "json").json
    assert planned["plan"]["parallel.world"] == 2
    assert planned["plan"]["devices.model"] == "a100-sxm4-80g"


def test_it_prints_yaml_or_json(tunec, driver):
    text = yaml.safe_load(tunec("probe", "--name", "here").out)
    assert text == tunec("probe", "--name", "here", "--format", "json").json
    assert text["nodes"][0]["accelerators"][0]["device"] == "a100-sxm4-80g"
    assert text["software"]["torch"]


def test_a_machine_without_devices_is_told_so(tunec, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = tunec("probe", "-o", tmp_path / "here.yaml")
    assert (found.code, found.out) == (1, "")
    assert "nvidia-smi lists no device" in found.err
    assert not (tmp_path / "here.yaml").exists()
    assert tunec("probe", "--format", "json").json["cluster"] is None
