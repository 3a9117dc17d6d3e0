"""What a spec names stays in its project, unless the command line itself names it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.small_spec import SPEC

from tunec.compiler.fleet.inputs import Reader
from tunec.compiler.fleet.selection import select
from tunec.compiler.frontend.load import Loaded, load_mapping, load_spec, load_text
from tunec.compiler.translate.translate import BadSetting, given_slots
from tunec.schemas.hardware.catalogue import cluster
from tunec.schemas.models.catalogue import card

HIDDEN = "password_of_the_machine"
FLEET = "fleet: 1\nspecs: {specs}\nclusters: [{clusters}]\ntargets: [deepspeed]\n{more}"


def told(loaded: Loaded) -> list[tuple[str, str]]:
    labels = [(each.id, each.primary) for each in loaded.diagnostics]
    return [(code, label.path if label else "") for code, label in labels]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository, beside files that are none of its business."""
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    (tmp_path / "x.json").write_text(f'{{"{HIDDEN}": 1, "{HIDDEN}": }}', "utf-8")
    return folder


def spec_with(path: str, value: Any) -> str:
    """The small spec with the value of one field."""
    if path == "data.lengths":
        return SPEC.replace("sequence: 1024", f"sequence: 1024, lengths: {value}")
    lines = [line for line in SPEC.splitlines() if not line.startswith(f"{path}:")]
    return "\n".join([*lines, f"{path}: {value}", ""])


FIELDS = ("extends", "model", "hardware", "calibration", "data.lengths")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("form", ["up", "absolute", "link"])
def test_a_file_outside_is_neither_read_nor_shown(field: str, form: str, project: Path) -> None:
    outside = project.parent / "x.json"
    (project / "link.json").symlink_to(outside)
    name = {"up": "../x.json", "absolute": str(outside), "link": "./link.json"}[form]
    spec = project / "spec.yaml"
    spec.write_text(spec_with(field, name), "utf-8")
    found = load_spec(spec)
    assert ("E0202", field) in told(found)
    assert HIDDEN not in str(found)
    allowed = load_spec(spec, allow_outside=True)
    assert ("E0202", field) not in told(allowed)


def test_the_config_of_inline_facts_stays_inside(project: Path) -> None:
    model = "{path: acme/own, config: ../x.json, stored_dtype: bf16}"
    found = load_text(spec_with("model", model), base=project)
    assert ("E0202", "model.config") in told(found)
    assert HIDDEN not in str(found)


def test_data_of_a_program_stays_inside_too(project: Path) -> None:
    data = {"tunec": 1, "model": "../x.json", "method": "lora", "hardware": "a100-80g-x8"}
    assert ("E0202", "model") in told(load_mapping(data, base=project))


def test_what_the_command_line_names_is_read(project: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(project)
    (project.parent / "own").mkdir()
    config = project.parent / "own/config.json"
    config.write_text(json.dumps(card("llama-3.2-1b").config), "utf-8")
    lab = project.parent / "lab.json"
    lab.write_text(cluster("a100-80g-x8").model_dump_json(exclude_unset=True), "utf-8")
    spec = project / "spec.yaml"
    spec.write_text(SPEC, "utf-8")
    found = load_spec(spec, ["model=../own"], "../lab.json")
    assert found.spec is not None, found.diagnostics


def test_what_lies_in_the_project_is_read(project: Path) -> None:
    (project / "own").mkdir()
    config = json.dumps(card("llama-3.2-1b").config)
    (project / "own/config.json").write_text(config, "utf-8")
    (project / "specs").mkdir()
    spec = project / "specs/spec.yaml"
    spec.write_text(spec_with("model", "../own"), "utf-8")
    assert load_spec(spec).spec is not None


def test_without_a_project_it_is_where_the_command_runs(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "config.json").write_text(json.dumps(card("llama-3.2-1b").config), "utf-8")
    spec = tmp_path / "specs/spec.yaml"
    spec.write_text(spec_with("model", "../config.json"), "utf-8")
    assert ("E0202", "model") in told(load_spec(spec))
    monkeypatch.chdir(tmp_path)
    assert load_spec(Path("specs/spec.yaml")).spec is not None


@pytest.mark.parametrize(
    ("specs", "clusters", "more"),
    [
        ("../*.json", "a100-80g-x8", ""),
        ("spec.yaml", "../x.json", ""),
        ("spec.yaml", "a100-80g-x8", "policies: [../x.json]\n"),
    ],
)
def test_a_fleet_reads_nothing_outside(specs: str, clusters: str, more: str, project: Path) -> None:
    (project / "spec.yaml").write_text(SPEC, "utf-8")
    file = project / "fleet.yaml"
    file.write_text(FLEET.format(specs=specs, clusters=clusters, more=more), "utf-8")
    found = select(file)
    fault = found.diagnostics[0]
    assert fault.id == "E0202"
    assert (fault.file, fault.span is not None) == (str(file), True)
    assert HIDDEN not in str(found)
    assert "E0202" not in [each.id for each in select(file, allow_outside=True).diagnostics]


FLEET_SAYS = ("model", "hardware", "calibration", "data.lengths", "model.config")


@pytest.mark.parametrize("field", FLEET_SAYS)
def test_what_a_fleet_lays_over_a_spec_stays_inside(field: str, project: Path) -> None:
    outside = str(project.parent / "x.json")
    spec = project / "specs/spec.yaml"
    spec.parent.mkdir()
    spec.write_text(SPEC, "utf-8")
    if field == "model.config":
        said: Any = {"model": {"path": "a/b", "config": outside, "stored_dtype": "bf16"}}
    else:
        said = outside
        for name in reversed(field.split(".")):
            said = {name: said}
    over = json.dumps([{"set": said}])
    more = f"overrides: {over}\n"
    file = project / "fleet.yaml"
    file.write_text(FLEET.format(specs="specs/*", clusters="a100-80g-x8", more=more), "utf-8")
    for allow, is_read in ((False, False), (True, True)):
        chosen = select(file, allow_outside=allow).selection
        assert chosen is not None
        found = Reader(chosen).loaded("spec", chosen.sites[0])
        assert (("E0202", field) not in told(found)) == (is_read or field == "hardware")
        assert HIDDEN not in str(found) or is_read


def test_a_path_of_a_fleet_counts_from_the_spec(project: Path) -> None:
    (project / "specs/own").mkdir(parents=True)
    config = json.dumps(card("llama-3.2-1b").config)
    (project / "specs/own/config.json").write_text(config, "utf-8")
    (project / "specs/spec.yaml").write_text(SPEC, "utf-8")
    file = project / "fleet.yaml"
    more = "overrides: [{set: {model: ./own}}]\n"
    file.write_text(FLEET.format(specs="specs/*.yaml", clusters="a100-80g-x8", more=more), "utf-8")
    chosen = select(file).selection
    assert chosen is not None
    found = Reader(chosen).loaded("spec", chosen.sites[0])
    assert found.spec is not None, found.diagnostics
    assert found.spec.model == "./own"


DASHED = (
    *("model", "hardware", "calibration", "data.train", "data.evaluation", "data.lengths"),
    *("train.output", "run.script", "pin.launch.script", "pin.runtime.output"),
    "pin.zero.nvme_path",
)


@pytest.mark.parametrize("field", DASHED)
@pytest.mark.parametrize("name", ["--output_dir=x", " -rf"])
def test_a_name_that_reads_as_an_option_is_refused(field: str, name: str) -> None:
    found = load_text(SPEC, overrides=[f"{field}={json.dumps(name)}"])
    assert ("E0316", field) in told(found)


@pytest.mark.parametrize(
    "line", ["data: {train: [a.jsonl, -b.jsonl]}", "data: {train: [{path: -b.jsonl, times: 2}]}"]
)
def test_so_is_one_of_several(line: str) -> None:
    lines = [each for each in SPEC.splitlines() if not each.startswith("data:")]
    found = load_text("\n".join([*lines, line, ""]))
    assert "E0316" in [each.id for each in found.diagnostics]


def test_a_reason_and_an_argument_may_begin_with_a_dash() -> None:
    pinned = 'pin.runtime.output={value: out, reason: "- as agreed"}'
    found = load_text(SPEC, overrides=["run={script: a.py, arguments: [--x]}", pinned])
    assert found.spec is not None, found.diagnostics


@pytest.mark.parametrize("slot", ["runtime.output", "launch.script"])
def test_a_slot_of_the_command_line_is_no_option(slot: str) -> None:
    with pytest.raises(BadSetting, match="is an option, and no name of a file"):
        given_slots([f"{slot}=--force"])
