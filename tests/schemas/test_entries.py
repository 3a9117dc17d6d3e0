"""A catalogue's files: found by name without an index, and told apart from what is broken."""

import json
import shutil
from pathlib import Path

import pytest
from tests.tables import loaded

import tunec.schemas
from tunec.compiler.frontend.document import faults_of
from tunec.schemas.caches import clear
from tunec.schemas.entries import BrokenEntry, heads, names_in
from tunec.schemas.hardware import catalogue as hardware
from tunec.schemas.models import catalogue as models
from tunec.schemas.models.derived_card import DerivedCard

FOLDERS = {hardware._DEVICES: ("title", "aliases"), models._CARDS: ("repo", "aliases", "siblings")}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_head_says_what_the_whole_file_says(folder):
    keys = FOLDERS[folder]
    found = heads(folder, keys)
    assert list(found) == list(names_in(folder))
    for name, head in found.items():
        whole = loaded((folder / f"{name}.yaml").read_text("utf-8"))
        assert head == {key: whole[key] for key in keys if key in whole}


def test_a_head_is_found_however_it_is_written(tmp_path):
    text = """\
# a comment
config: {aliases: [no]}
aliases:
# between
- one

- "two"
title: >-
  of more
  lines
more: "aliases: no"
'siblings':
  no: 1
"""
    (tmp_path / "a.yaml").write_text(text, "utf-8")
    found = heads(tmp_path, ("aliases", "title", "siblings"))["a"]
    assert found == {"aliases": ["one", "two"], "title": "of more lines"}


# ── broken files ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A catalogue of its own: copies of one device, its machines, and two models."""
    clear()
    (tmp_path / "devices").mkdir()
    (tmp_path / "cards").mkdir()
    shutil.copy(hardware._DEVICES / "rtx-4090.yaml", tmp_path / "devices")
    shutil.copy(hardware._MACHINES, tmp_path)
    for name in ("llama-3.1-8b", "llama-3-8b"):
        shutil.copy(models._CARDS / f"{name}.yaml", tmp_path / "cards")
    monkeypatch.setattr(hardware, "_DEVICES", tmp_path / "devices")
    monkeypatch.setattr(hardware, "_MACHINES", tmp_path / "machines.yaml")
    monkeypatch.setattr(models, "_CARDS", tmp_path / "cards")
    yield tmp_path
    clear()


def changed(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")


def fault(shelf: Path, ask=lambda: hardware.cluster("rtx-4090-x3")) -> tuple[str, ...]:
    """Code, place, message and help of the one fault that asking finds."""
    with pytest.raises(BrokenEntry) as caught:
        ask()
    (told,), sources = faults_of(caught.value)
    span = told.labels[0].span
    assert span is None or span.file in sources
    place = f"{Path(span.file).relative_to(shelf).as_posix()}:{span.line}" if span else ""
    return told.id, place, told.message, told.help


def test_a_device_is_one_file(shelf):
    text = (shelf / "devices/rtx-4090.yaml").read_text("utf-8")
    copied = text.replace("rtx-4090", "rtx-4095", 1).replace("RTX 4090", "RTX 4095", 1)
    new = copied.replace('["4090", rtx4090]', '["4095"]', 1)
    (shelf / "devices/rtx-4095.yaml").write_text(new, "utf-8")
    assert hardware.device_names() == ("rtx-4090", "rtx-4095")
    built = hardware.cluster("4095-x2-n2")
    assert built.nodes[0].accelerators[0].device == "rtx-4095"
    assert "rtx-4095-x8" in hardware.hardware_names()


def test_a_copied_alias_is_refused_with_its_place(shelf):
    text = (shelf / "devices/rtx-4090.yaml").read_text("utf-8")
    (shelf / "devices/rtx-4095.yaml").write_text(text.replace("rtx-4090", "rtx-4095", 1), "utf-8")
    assert fault(shelf, lambda: hardware.device("4090")) == (
        "E0305",
        "devices/rtx-4095.yaml:4",
        "`4090` names rtx-4090 already",
        "leave it to one of the two: a name stands for one device",
    )


def test_a_copied_name_is_refused_with_its_place(shelf):
    shutil.copy(shelf / "devices/rtx-4090.yaml", shelf / "devices/rtx-4095.yaml")
    assert fault(shelf, lambda: hardware.device("rtx-4095")) == (
        "E0305",
        "devices/rtx-4095.yaml:1",
        "the file is called `rtx-4095` and holds `rtx-4090`",
        "write `name: rtx-4095`, or rename the file",
    )


def test_a_cluster_of_a_device_that_is_not_there_is_refused(shelf, monkeypatch):
    (shelf / "clusters").mkdir()
    shutil.copy(hardware._CLUSTERS / "g5.2xlarge.yaml", shelf / "clusters")
    monkeypatch.setattr(hardware, "_CLUSTERS", shelf / "clusters")
    changed(shelf / "clusters/g5.2xlarge.yaml", "device: a10g", "device: rtx-4095")
    assert fault(shelf, lambda: hardware.cluster("g5.2xlarge")) == (
        "E0305",
        "clusters/g5.2xlarge.yaml:5",
        "no device is called `rtx-4095`",
        "name one of devices, or add it there: rtx-4090",
    )


def test_a_machine_that_is_not_there_is_refused_with_those_that_are(shelf):
    changed(shelf / "devices/rtx-4090.yaml", "machine: workstation-64g", "machine: mine")
    code, place, message, remedy = fault(shelf)
    assert (code, message) == ("E0305", "no machine is called `mine`")
    assert place.startswith("devices/rtx-4090.yaml:")
    assert remedy.startswith("name one of machines.yaml, or add it there: workstation-32g, ")


def test_a_shared_row_that_is_not_there_is_refused_with_those_that_are(shelf):
    changed(shelf / "devices/rtx-4090.yaml", "pcie-4", "pcie-9")
    code, place, message, remedy = fault(shelf)
    assert (code, place) == ("E0305", "devices/rtx-4090.yaml:3")
    assert message == "no row is called `pcie-9`"
    assert remedy.startswith("name one of shared.yaml, or add it there: sm-60, ")


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("devices/rtx-4090.yaml", "machine: workstation-64g\n", "", "`machine` is missing"),
        ("devices/rtx-4090.yaml", "memory: 24081MiB\n", "", "`memory` is missing"),
        (
            "devices/rtx-4090.yaml",
            "8.26e+13\n",
            "[\n",
            "a list in brackets is not closed, or a comma is missing",
        ),
        (
            "machines.yaml",
            "cores: 8",
            "cores: ate",
            "`machines.workstation-64g.cores` must be a wh",
        ),
    ],
)
def test_a_fault_of_a_file_is_told_as_one_of_a_spec_is(shelf, file, old, new, told):
    changed(shelf / file, old, new)
    code, place, message, _ = fault(shelf)
    assert place.startswith(file + ":")
    assert message.startswith(told)
    assert code.startswith("E0")


def test_a_repository_that_two_cards_claim_is_refused(shelf):
    taken = "meta-llama/META-Llama-3-8B"
    changed(shelf / "cards/llama-3.1-8b.yaml", "aliases: [", f"aliases: [{taken}, ")
    assert fault(shelf, lambda: models.card(taken)) == (
        "E0305",
        "cards/llama-3.1-8b.yaml:4",
        f"`{taken}` is claimed by llama-3-8b already",
        None,
    )


def test_the_command_line_shows_it_as_a_fault_of_the_file(shelf, capsys):
    from tunec.compiler.cli.main import run
    from tunec.targets.registry import REGISTRY

    changed(shelf / "devices/rtx-4090.yaml", "shares: [", "vendor: nvidea\nshares: [")
    assert run(["catalog", "devices", "rtx-4090"], REGISTRY, "0") == 1
    told = capsys.readouterr().err
    assert "error[E0304]" in told
    assert "devices/rtx-4090.yaml:3" in told
    assert "bug in tunec" not in told


SHIPPED = sorted((Path(tunec.schemas.__file__).parent / "models/derived").glob("*.json"))


def test_all_that_are_shipped_are_read():
    assert len(SHIPPED) > 50
    for each in SHIPPED:
        DerivedCard.of_json(each.read_bytes())


def card(**changed):
    found = json.loads(next(each for each in SHIPPED if "apertus" in each.name).read_text("utf-8"))
    architecture = found["architecture"]
    for path, value in changed.items():
        holder, *keys, last = [int(k) if k.isdigit() else k for k in ("", *path.split("__"))]
        holder = architecture
        for key in keys:
            holder = holder[key]
        holder[last] = value
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    "changed",
    [
        {"stacks": []},
        {"stacks__0__layers": 0},
        {"stacks__0__part": "vision"},
        {"hidden": 0},
        {"vocab": -1},
        {"modules__0__path": "{:9999999999}"},
        {"modules__0__path": "{0.__class__}"},
        {"modules__0__copies": 10**9},
        {"modules__0__indices": [[1, 2, 3], [4]]},
        {"modules__0__shape": [-1, 2]},
        {"modules__1__shape": [8192]},
        {"modules__1__path": "model.layers.{}.mlp.experts.bias", "modules__1__kind": "parameter"}
        | {"modules__1__shape": [8192]},
    ],
    ids=str,
)
def test_what_no_class_has_is_refused(changed):
    DerivedCard.of_json(card())
    with pytest.raises(ValueError):  # noqa: PT011  msgspec's and ours
        DerivedCard.of_json(card(**changed))


def test_a_denoiser_whose_blocks_are_measured_in_part_is_refused():
    found = json.loads(next(each for each in SHIPPED if "AuraFlow" in each.name).read_text("utf-8"))
    DerivedCard.of_json(json.dumps(found).encode())
    found["architecture"]["stacks"][1].pop("blocks")
    with pytest.raises(ValueError, match="measured in the same ways"):
        DerivedCard.of_json(json.dumps(found).encode())
