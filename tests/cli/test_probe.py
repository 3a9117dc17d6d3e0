"""`tunec probe`: what the machine's tools say, and the profile that a user gets of it."""

import pytest
import yaml
from tests.cli.shell import FIVE

from tunec.compiler.probe.machine import Unreadable, boards, describe, pairs
from tunec.compiler.probe.readings import Readings
from tunec.schemas.hardware.catalogue import device
from tunec.schemas.hardware.profile import unsourced

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


H100 = "NVIDIA H100 80GB HBM3"
TWO = f"{H100}, GPU-aa, 81559, 433, Disabled\n{H100}, GPU-bb, 81559, 433, Disabled\n"
WIRED = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\t0-31\t0\t\tN/A
GPU1\tNV18\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPIX\tSYS\t X

Legend:

  X    = Self
"""
MEMINFO = "MemTotal:       1056768000 kB\nMemFree:        900000000 kB\n"
CPUINFO = "".join(
    f"processor\t: {at}\nphysical id\t: {at % 2}\ncore id\t\t: {at // 4}\n\n" for at in range(128)
)


def machine(**changes):
    facts = {
        "host": "node-17.cluster.example",
        "devices": TWO,
        "topology": WIRED,
        "meminfo": MEMINFO,
        "cpuinfo": CPUINFO,
        "memory_limit": "max\n",
        "usable_cores": 128,
        "software": {"transformers": "5.23.0"},
    }
    return Readings(**{**facts, **changes})


def test_a_node_of_two_wired_modules():
    found = describe(machine())
    (node,) = found.nodes
    (group,) = node.accelerators
    assert (found.name, found.software) == ("node-17", {"transformers": "5.23.0"})
    assert (group.device, group.count, group.uuids) == ("h100-sxm", 2, ("GPU-aa", "GPU-bb"))
    assert group.memory is None  # the catalogue's figure holds
    assert node.link == device("h100-sxm").link
    assert (node.host.memory, node.host.cores) == (1056768000 * 1024, 64)


def test_a_device_without_memory_of_its_own_has_the_hosts():
    found = describe(machine(devices="NVIDIA GB10, GPU-aa, [N/A], [N/A], [N/A]\n", topology=""))
    (node,) = found.nodes
    assert (node.accelerators[0].device, node.link) == ("gb10", None)
    assert node.accelerators[0].memory == node.host.memory == 1056768000 * 1024


def test_every_number_has_a_source():
    assert unsourced(describe(machine())) == ()


@pytest.mark.parametrize(
    ("way", "note"),
    [("SYS", "link: SYS, which is PCIe and the host"), ("PHB", "link: PHB, which is PCIe and")],
)
def test_cards_that_no_bridge_joins(way, note):
    found = describe(machine(topology=WIRED.replace("NV18", way)))
    assert found.nodes[0].link is None
    assert any(each.startswith(note) for each in found.notes)


def test_one_pair_without_a_bridge_sets_the_pace():
    rows = ["X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X"]
    topology = "\n".join(f"GPU{at} {row} 0-31 0" for at, row in enumerate(rows))
    four = "".join(f"NVIDIA RTX A6000, GPU-{at}, 49140, 500, [N/A]\n" for at in range(4))
    found = describe(machine(devices=four, topology=topology))
    assert found.nodes[0].link is None
    assert "link: NVLink joins 2 of 6 pairs; the other pairs limit the speed" in found.notes


def test_a_matrix_that_is_not_whole_says_nothing():
    assert pairs(WIRED, 3) == ()
    assert pairs("", 2) == ()


def test_mixed_cards_stay_in_the_order_of_the_bus():
    rows = (
        "NVIDIA GeForce GTX 1080 Ti, GPU-1, 11264, 90, [N/A]\n"
        "NVIDIA TITAN RTX, GPU-2, 24576, 256, [N/A]\n"
    )
    found = describe(machine(devices=rows, topology=None))
    assert [each.device for each in found.nodes[0].accelerators] == ["gtx-1080-ti", "titan-rtx"]
    assert found.is_mixed


def test_a_driver_that_does_not_tell_its_own_share():
    (one,) = boards("Tesla T4, GPU-t4, 15360\n")
    assert (one.memory, one.is_split) == (15360 << 20, False)
    (group,) = describe(machine(devices="Tesla T4, GPU-t4, 15360\n")).nodes[0].accelerators
    assert group.memory is None


def test_a_board_of_another_size_keeps_its_own_figure():
    rows = f"{H100}, GPU-aa, 40000, 400, Disabled\n"
    (group,) = describe(machine(devices=rows)).nodes[0].accelerators
    assert group.memory == 39600 << 20


def test_the_control_group_bounds_the_host():
    found = describe(machine(memory_limit=str(64 << 30), usable_cores=8))
    assert (found.nodes[0].host.memory, found.nodes[0].host.cores) == (64 << 30, 8)
    assert any("control group" in each for each in found.notes)


def test_a_virtual_cpu_that_hides_its_cores():
    assert describe(machine(cpuinfo="processor\t: 0\n", usable_cores=6)).nodes[0].host.cores == 6


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"devices": None}, ["nvidia-smi lists no device"]),
        (
            {"devices": "NVIDIA H101, GPU-x, 81559, 433, Disabled\n"},
            ["{device: h100-sxm, memory: 79.2GiB}"],
        ),
        ({"devices": f"{H100}, GPU-x, 81559, 433, Enabled\n"}, ["split by MIG"]),
        (
            {"devices": f"{H100}, GPU-x, 81559, 433, Enabled\nMystery, GPU-y, 1, 0, [N/A]\n"},
            ["split by MIG", "'Mystery' is not in"],
        ),
        ({"meminfo": None}, ["how much memory the host has"]),
    ],
)
def test_what_cannot_be_described_is_refused_with_every_reason(changes, reasons):
    with pytest.raises(Unreadable) as fault:
        describe(machine(**changes))
    assert len(fault.value.reasons) == len(reasons)
    for said, expected in zip(fault.value.reasons, reasons, strict=True):
        assert expected in said
