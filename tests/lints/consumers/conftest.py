from pathlib import Path

import pytest


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The hub's cache is the test's own: a program finds no models."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
