import pytest
from tests.lints.lint_asking import lint

from tunec.compiler.lints import suppression
from tunec.compiler.lints.facts.memory import estimate
from tunec.compiler.lints.index import Record


@pytest.fixture(autouse=True)
def _proven(request, monkeypatch):
    """Whatever is told was always so, that a test shows the premise it is about.

    A test that asks for `as_judged` sees what the records leave.
    """
    if "as_judged" not in request.fixturenames:
        monkeypatch.setattr(suppression, "record", lambda _: Record(99, 99))


@pytest.fixture
def as_judged():
    """The records of rules are those of the judgements."""


@pytest.fixture
def estimated(tmp_path, monkeypatch):
    """What the rule reckons of files."""
    seen = []
    real = estimate.estimate
    monkeypatch.setattr(estimate, "estimate", lambda run: seen.append(real(run)) or seen[-1])

    def ask(files, *arguments, hardware="a100-sxm4-80g-x2"):
        first = next(iter(files))
        lint(tmp_path, files, [first, *arguments, "--hardware", hardware])
        return seen[-1]

    return ask
