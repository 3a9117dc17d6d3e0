import pytest


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """A browser, where there is one: `tests.review.browser.missing`."""
    from tests.review.browser import browser

    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found
