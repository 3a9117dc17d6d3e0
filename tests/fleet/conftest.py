from pathlib import Path

import pytest
from tests.fleet.fleets import write_fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet file with three specs on four clusters."""
    return write_fleet(tmp_path)
