"""A trainer's specs, compiled for several of its releases and asked of its own programs."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.tables import loaded
from tests.verify.edited_runs import Fault

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_text
from tunec.compiler.verify.cases import cases_of, distinct
from tunec.compiler.verify.check import Check
from tunec.compiler.verify.contract import Case, Delivered
from tunec.compiler.verify.queries import verify
from tunec.schemas.frozen import replace
from tunec.targets.registry import TARGETS

Specs = Mapping[str, Mapping[str, Any]]


def specs_of(target: str) -> Specs:
    """The specs that stand in `TARGET_specs.yaml`, by name."""
    text = Path(__file__).with_name(f"{target}_specs.yaml").read_text("utf-8")
    specs: Specs = loaded(text)
    assert len(specs) >= 20
    return specs


def compiled(target: str, specs: Specs, name: str, release: str) -> list[Case]:
    """What `tunec verify` would ask of one spec's files for a release."""
    asked = TARGETS.resolve(f"{target}@{release}")
    text = yaml.safe_dump({"tunec": 1, "name": f"{name}-{release}", **specs[name]})
    result = compile_spec(load_text(text, targets=TARGETS.names()), [asked])
    assert result.ok, [each.message for each in result.diagnostics if each.severity == "error"]
    return cases_of(result, [asked])


def checked(target: str, specs: Specs, asked: Iterable[tuple[str, str]]) -> tuple[Check, ...]:
    """What the programs say of specs for releases, in pairs of their names."""
    cases = [each for name, release in asked for each in compiled(target, specs, name, release)]
    return verify(distinct(cases))


def with_faults(target: str, specs: Specs, faults: Mapping[str, Fault], release: str) -> list[Case]:
    """The runs that faults are planted in, each with its one file edited, under a fault's name."""
    runs = {each.run for each in faults.values()}
    sound = {run: _sound(target, specs, run, release) for run in sorted(runs)}
    return [_edited(sound[fault.run], name, fault) for name, fault in faults.items()]


def _sound(target: str, specs: Specs, run: str, release: str) -> Case:
    (case,) = compiled(target, specs, run, release)
    return case


def _edited(sound: Case, name: str, fault: Fault) -> Case:
    (old,) = sound.delivered.values()
    text = fault.edit(old.text)
    assert text != old.text, name
    return replace(sound, spec=name, delivered={old.name: Delivered(old.name, name, text)})


def assert_resolved(
    checks: Iterable[Check], consumer: str, program: str, specs: set[str], fewest: int
) -> None:
    """A program resolves what was planned, in at least `fewest` values of each of the specs."""
    asked = [each for each in checks if each.consumer == consumer]
    assert [each for each in asked if each.status in ("differs", "refused")] == []
    read = [each for each in asked if each.program == program]
    reasons = {each.reason for each in read if each.status == "unchecked"}
    if reasons:
        pytest.skip(f"not checked: {'; '.join(sorted(reasons))}")
    release = consumer.rpartition("@")[2]
    assert {each.spec for each in read} == {f"{name}-{release}" for name in specs}
    assert all(len(each.compared) >= fewest for each in read)
