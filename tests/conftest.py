import os
import signal
from collections.abc import Iterator
from functools import cache, wraps
from pathlib import Path

import pytest
from tests import hypothesis_profiles
from tests.cli.shell import Shell
from tests.recording import plugin
from tests.recording.places import ROOT

from tunec.compiler.cli.session import Session
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints import rule

hypothesis_profiles.register()
os.environ["OMP_NUM_THREADS"] = "1"
"""Before torch is loaded: tests fork, and a fork has none of the threads that OpenMP waits for."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell lets what it starts in the background ignore Ctrl-C, and so would what tests start."""

FIRST = (
    "tests/road",
    "tests/fleet/test_twenty_by_fifty.py",
    "tests/clusters",
    "tests/rehearse",
    "tests/driver",
    "tests/fleet",
    "tests/consumers",
    "tests/targets",
    "tests/lints",
    "tests/tracing",
    "tests/analyses",
    "tests/verify",
    "tests/house",
)
"""What takes longest: begun last, one process would end with it while the other is idle."""


def pytest_addoption(parser):
    parser.addoption("--bless", action="store_true", help="write what is found as what is expected")
    plugin.add_option(parser)


def pytest_configure(config):
    plugin.begin(config)
    rule.failure = wraps(rule.failure)(raised_again)
    Session.diagnose = noting_what_has_no_place(Session.diagnose)  # type: ignore[method-assign]


def raised_again(_, fault, __):
    """A rule that fails is told among the findings; in tests it fails the test."""
    raise fault


PLACELESS: list[Diagnostic] = []
"""What a command has told without a file, a line and a column."""


def noting_what_has_no_place(diagnose):
    def noting(self, diagnostics, sources):
        told = tuple(diagnostics)
        PLACELESS.extend(each for each in told if each.span is None)
        diagnose(self, told, sources)

    return noting


@pytest.fixture(autouse=True)
def every_diagnostic_has_a_place() -> Iterator[None]:
    """Whatever a command tells in any test stands in a file, at a line."""
    PLACELESS.clear()
    yield
    assert not PLACELESS


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: place(item.path))


@cache
def place(file: Path) -> int:
    """How early a file is begun; those that are not named keep their order."""
    path = file.relative_to(ROOT)
    every = (str(path), *map(str, path.parents))
    return min((at for at, name in enumerate(FIRST) if name in every), default=len(FIRST))


@pytest.fixture(autouse=True)
def environment_as_before() -> Iterator[None]:
    """What a program writes into the environment ends with its test."""
    before = dict(os.environ)
    yield
    if before != os.environ:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def tunec(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Run a command in this process: `tunec("plan", path)`."""
    return Shell(capsys)
