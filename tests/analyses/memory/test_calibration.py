"""A kept trace: who reads it, what it changes, and when it is refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from workload_builders import LLAMA_32_1B, full, layout, model

from tunec.compiler.analyses.memory.account import account, largest_micro_batch
from tunec.compiler.analyses.memory.calibration import (
    FILE,
    FORMAT,
    TRACED,
    Unusable,
    calibration_of,
    config_digest,
    key_of,
)
from tunec.compiler.driver import Planned, plan
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.rendering import header_of
from tunec.compiler.review.explain import explain_text
from tunec.compiler.review.plan_view import plan_json, plan_text
from tunec.schemas.frozen import replace
from tunec.schemas.units import GIB, MIB

CONFIG = LLAMA_32_1B | {"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 1024}
SPEC = """\
tunec: 1
model: model
method: full
data: {train: train.jsonl, samples: 1000, sequence: 512, packing: true}
hardware: a100-80g-x1
pin: {parallel.engine: none, batch.micro: 4}
"""
FIXED, EACH = 3 * GIB, 2 * GIB


def contents(key: str, config: Mapping[str, Any] = CONFIG) -> dict[str, Any]:
    line = {"fixed": {"weights": FIXED}, "per_sample": {"activations": EACH}}
    return {
        "tunec_calibration": FORMAT,
        "config": config_digest(config),
        "key": key,
        "versions": {"torch": "2.13.0"},
        "phases": dict.fromkeys(TRACED, line),
    }


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(CONFIG), "utf-8")
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC, "utf-8")
    return file


def planned(spec: Path) -> Planned:
    return plan(load_spec(spec))


def keep(spec: Path, at: str, **changes: Any) -> None:
    memory = planned(spec).memory
    assert memory is not None
    key = key_of(memory.workload, memory.layout, padded=False)
    (spec.parent / at).write_text(json.dumps(contents(key) | changes), "utf-8")


def test_a_file_beside_the_config_is_used_and_named(spec: Path) -> None:
    before = planned(spec)
    keep(spec, f"model/{FILE}")
    after = planned(spec)
    assert before.memory is not None
    assert after.memory is not None
    assert before.memory.calibration is None
    assert after.memory.peak_bytes == FIXED + 4 * EACH
    assert after.memory.peak_phase in TRACED
    assert plan_json(after)["memory"]["gpu"]["calibration"] == FILE
    assert f"as traced in {FILE} with torch 2.13.0" in plan_text(after)
    assert f"as traced in {FILE}" in explain_text(after, "zero.stage")
    assert f"as traced in {FILE}" not in explain_text(after, "model.path")


def test_the_digest_of_a_plan_covers_it(spec: Path) -> None:
    keep(spec, f"model/{FILE}")
    first = planned(spec)
    keep(spec, f"model/{FILE}", versions={"torch": "2.12.0"})
    second = planned(spec)
    assert first.plan is not None
    assert second.plan is not None
    assert header_of(first.loaded, first.plan) != header_of(second.loaded, second.plan)
    assert f"model/{FILE}" in dict(first.loaded.files)


def test_a_spec_may_name_the_file(spec: Path) -> None:
    keep(spec, "kept.json")
    spec.write_text(f"{SPEC}calibration: kept.json\n", "utf-8")
    memory = planned(spec).memory
    assert memory is not None
    assert memory.calibration == "kept.json"


def test_it_is_not_used_for_another_run_and_the_plan_says_so(spec: Path) -> None:
    keep(spec, f"model/{FILE}")
    spec.write_text(SPEC.replace("sequence: 512", "sequence: 256"), "utf-8")
    other = planned(spec)
    assert other.memory is not None
    assert other.memory.calibration is None
    assert f"the trace in {FILE} is of another run of the model" in plan_text(other)


def test_the_search_uses_it(spec: Path) -> None:
    keep(spec, f"model/{FILE}")
    memory = planned(spec).memory
    assert memory is not None
    room = memory.required_bytes + MIB
    assert largest_micro_batch(memory.workload, memory.layout, room) == 4
    bare = replace(memory.workload, calibration=None)
    assert largest_micro_batch(bare, memory.layout, room) > 4


def test_another_models_calibration_is_an_error(spec: Path) -> None:
    keep(spec, f"model/{FILE}", config="0" * 64)
    (fault,) = planned(spec).diagnostics
    assert (fault.id, fault.severity) == ("E0305", "error")
    assert "another config" in fault.message


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tunec_calibration": 1}', "\x00"])
def test_what_is_no_calibration_is_an_error(spec: Path, text: str) -> None:
    (spec.parent / "model" / FILE).write_text(text, "utf-8")
    (fault,) = planned(spec).diagnostics
    assert fault.id == "E0305"
    assert FILE in fault.message


def test_a_named_file_must_be_there(spec: Path) -> None:
    spec.write_text(f"{SPEC}calibration: nowhere.json\n", "utf-8")
    (fault,) = planned(spec).diagnostics
    assert "cannot read `nowhere.json`" in fault.message
    assert fault.primary is not None
    assert fault.primary.path == "calibration"


@pytest.mark.parametrize(
    "change", [{"phases": {}}, {"phases": None}, {"key": None, "phases": 3}, {"versions": []}]
)
def test_a_damaged_file_is_not_read(change: dict[str, Any]) -> None:
    with pytest.raises(Unusable):
        calibration_of(contents("k") | change, "kept.json")


def test_bytes_must_be_whole_numbers() -> None:
    found = contents("k")
    found["phases"] = {name: {"fixed": {"weights": 1.5}, "per_sample": {}} for name in TRACED}
    with pytest.raises(Unusable):
        calibration_of(found, "kept.json")


def test_evaluation_is_still_reckoned() -> None:
    workload, plan_of = full(model(CONFIG)), layout(2)
    key = key_of(workload, plan_of, padded=False)
    known = replace(workload, calibration=calibration_of(contents(key), "kept.json"))
    found = account(known, plan_of)
    assert [line.name for line in found.lines] == [*TRACED, "evaluation"]
