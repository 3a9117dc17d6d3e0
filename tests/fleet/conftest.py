import sys
from pathlib import Path

import pytest
from tests.fleet.fleets import write_fleet

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))


@pytest.fixture
def tunec(capsys):
    """Run a command: `tunec("fleet", file, "-o", folder)`."""
    from shell import Shell

    return Shell(capsys)


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet file with three specs on four clusters."""
    return write_fleet(tmp_path)
