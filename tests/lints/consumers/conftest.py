import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What a program writes into the environment ends with its test; it finds no models."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
