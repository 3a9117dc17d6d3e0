import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))


@pytest.fixture
def tunec(capsys):
    """Run a command: `tunec("choose", spec)`."""
    from shell import Shell

    return Shell(capsys)
