"""The files that tunec writes itself break none of its rules, on any example and any target."""

import time
from pathlib import Path

import pytest

import tunec
from tunec.compiler.lints.emission import environment_of
from tunec.compiler.lints.lint import check_artifacts
from tunec.targets.registry import TARGETS

_EXAMPLES = sorted(Path(__file__).parents[2].glob("examples/*/spec.yaml"))
_MOST_SECONDS = 2.0
"""For the files of one target, on a busy machine; alone it is a twentieth of that."""


@pytest.mark.parametrize("spec", _EXAMPLES, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("name", TARGETS.names())
def test_what_is_compiled_breaks_no_rule(spec: Path, name: str) -> None:
    compiled = tunec.compile(spec, targets=[name])
    facts, plan = compiled.planned.facts, compiled.planned.plan
    if not compiled.ok or facts is None or plan is None:
        pytest.skip(f"{name} cannot say this plan")
    environment = environment_of(*TARGETS.resolve(name, facts.versions), facts, plan)
    start = time.process_time()
    found = check_artifacts(compiled.artifacts[name], TARGETS.readable(), environment)
    assert [f"{each.id}: {each.message}" for each in found] == []
    assert time.process_time() - start < _MOST_SECONDS
