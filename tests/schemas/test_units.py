"""Quantities and paths as they are written: without its unit a number is refused."""

import pytest
from tests.tables import rows

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_mapping, load_text
from tunec.schemas.data_paths import data_kind, is_local
from tunec.schemas.units import (
    GIB,
    MIB,
    NotAQuantity,
    likely_bytes,
    parse_bytes,
    parse_length,
    parse_rate,
)

SPEC = """\
tunec: 1
model: llama-3.1-8b
method: lora
data: {{train: train.jsonl, sequence: {sequence}}}
hardware: {hardware}
budget: {budget}
"""
INLINE = """{{name: x, nodes: [{{count: {count}, accelerators: [{{device: l4, memory: {device}}}], \
host: {{memory: {host}, cores: 8, memory_bandwidth: {bandwidth}}}}}], \
network: {{kind: infiniband, bandwidth: {network}}}}}"""
GOOD = {
    "count": 2,
    "device": "22GiB",
    "host": "64GiB",
    "bandwidth": "100GB/s",
    "network": "200Gbit/s",
}


def faults(sequence="2048", budget="{}", **machine):
    hardware = INLINE.format(**{**GOOD, **machine})
    loaded = load_text(SPEC.format(sequence=sequence, hardware=hardware, budget=budget))
    return loaded, [each for each in loaded.diagnostics if each.severity == "error"]


def test_units_are_read():
    loaded, found = faults(budget="{gpu_memory: 20GiB, host_memory: 90%}")
    assert found == []
    (node,) = loaded.cluster.nodes
    assert node.host.memory == 64 * GIB
    assert node.accelerators[0].memory == 22 * GIB
    assert node.host.memory_bandwidth == 100e9
    assert loaded.cluster.network.bandwidth == 25e9
    assert plan(loaded).plan is not None


@pytest.mark.parametrize(*rows(__file__, "test_a_number_without_its_unit_is_refused"))
def test_a_number_without_its_unit_is_refused(field, value, meant):
    _, (found,) = faults(**{field: value})
    assert found.id == "E0306"
    assert f"write `{meant}`" in found.help
    (edit,) = found.fix.edits
    assert edit.text == meant


@pytest.mark.parametrize("field", ["bandwidth", "network"])
def test_a_rate_without_its_unit_is_refused_with_both_that_it_may_have(field):
    _, (found,) = faults(**{field: "25"})
    assert found.help == "write `25GB/s` or `25Gbit/s`, whichever is meant"
    assert faults(**{field: "2.5e+10"})[1] == []


def test_a_pin_of_an_amount_needs_its_unit_too():
    data = {
        "tunec": 1,
        "model": "llama-3.1-8b",
        "method": "lora",
        "data": {"train": "x", "sequence": 1024},
        "hardware": "a100-80g-x1",
    }
    (found,) = load_mapping({**data, "pin": {"devices.budget": 70}}).diagnostics
    assert (found.id, found.help) == ("E0403", "write `70GiB`")
    assert load_mapping({**data, "pin": {"devices.budget": 70 * GIB}}).diagnostics == ()


def test_what_programs_write_is_bytes():
    assert parse_bytes(84974239744) == 84974239744
    assert parse_bytes("84974239744B") == 84974239744
    assert parse_bytes(True) is True
    with pytest.raises(NotAQuantity):
        parse_bytes(GIB - 1)
    assert parse_rate(4.5e11) == 4.5e11
    assert parse_rate("400Gbit/s") == 50e9
    assert parse_rate("1 TB/s") == 1e12
    assert (parse_length(4096), parse_length("2_048 tokens")) == (4096, 2048)


@pytest.mark.parametrize(
    ("number", "amount"), [(80, 80 * GIB), (81559, 81559 * MIB), (65536000, 62.5 * GIB)]
)
def test_the_offered_amount_is_one_that_machines_have(number, amount):
    assert parse_bytes(likely_bytes(str(number))) == amount


@pytest.mark.parametrize(*rows(__file__, "test_the_form_says_the_kind"))
def test_the_form_says_the_kind(path, kind):
    """Suffix, beginning and end tell; nothing is looked up."""
    assert data_kind(path) == kind
    assert is_local(path) == (kind in ("file", "directory"))
