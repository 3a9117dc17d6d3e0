import pytest
from tests.lints.lint_asking import lint

from tunec.compiler.lints.facts.memory import estimate


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
