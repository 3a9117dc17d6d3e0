import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def tunec(capsys):
    """Run a command: `tunec("plan", path)`."""
    from shell import Shell

    return Shell(capsys)
