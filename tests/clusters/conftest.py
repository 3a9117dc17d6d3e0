"""A cluster of Slurm for the tests of a session."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from slurm_here import Slurm, Unavailable, cluster, free_ports


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A real controller with two nodes; skipped, with the reason, where none can be had."""
    running = cluster(tmp_path_factory.mktemp("slurm") / "here")
    try:
        found = running.__enter__()
    except Unavailable as why:
        pytest.skip(str(why))
    try:
        yield found
    finally:
        running.__exit__(None, None, None)


@pytest.fixture
def free_port() -> int:
    """A port of loopback that nobody listens on."""
    (found,) = free_ports(1)
    return found
