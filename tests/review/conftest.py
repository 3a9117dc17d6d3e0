import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """A browser, where there is one: `tests.review.browser.missing`."""
    from tests.review.browser import browser

    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def tunec(capsys):
    """Run a command: `tunec("diff", old, new)`."""
    from shell import Shell

    return Shell(capsys)
