"""Of files that tunec writes, lint says what was said when they were written, and no more."""

import time
from pathlib import Path

import pytest

import tunec
from tunec.compiler.lints.emission import EXEMPT, environment_of
from tunec.compiler.lints.lint import lint_texts
from tunec.targets.registry import TARGETS

_EXAMPLES = sorted(Path(__file__).parents[2].glob("examples/*/spec.yaml"))
_MOST_SECONDS = 2.0
"""For the files of one target, on a busy machine; alone it is a twentieth of that."""
_ALONE = "missing-file"
"""The file of another target that was not written."""


@pytest.mark.parametrize("spec", _EXAMPLES, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("name", TARGETS.names())
def test_what_is_compiled_breaks_no_rule(spec: Path, name: str) -> None:
    compiled = tunec.compile(spec, targets=[name])
    facts, plan = compiled.planned.facts, compiled.planned.plan
    if not compiled.ok or facts is None or plan is None:
        pytest.skip(f"{name} cannot say this plan")
    environment = environment_of(*TARGETS.resolve(name, facts.versions), facts, plan)
    texts = {each.name: each.text for each in compiled.artifacts[name]}
    start = time.process_time()
    linted = lint_texts(texts, TARGETS.readable(), environment)
    assert time.process_time() - start < _MOST_SECONDS
    said = {(each.id, each.message) for each in compiled.diagnostics}
    found = {(each.id, each.message) for each in linted.diagnostics if each.severity != "note"}
    assert {each for each in found - said if each[0] not in {*EXEMPT, _ALONE}} == set()
