"""What every module here shares that puts a table of questions to all releases of a consumer.

Such a module names the `SETS` it asks and the `QUESTIONS` it puts; the answers come by release.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tunec.targets.generate_schemas import tell

Answer = Callable[[str, str], Any]


@pytest.fixture(scope="module")
def told(request):
    """Every release's answers to all questions, asked once.

    One after the other: a server forks each, and the other processor has tests of its own.
    """
    answers = [tell(each, request.module.QUESTIONS) for each in request.module.SETS]
    return {each.known.version: each for each in answers}


@pytest.fixture
def answer(told) -> Answer:
    return lambda version, name: told[version].answers[name]


@pytest.fixture
def refusal(answer):
    """The message of a refusal with its stage, or None."""

    def of(version: str, name: str) -> str | None:
        refused = answer(version, name)["refused"]
        return refused and f"{refused['stage']}: {refused['message']}"

    return of


@pytest.fixture
def value(answer):
    """What a release took for a key, of a question that it did not refuse."""

    def of(version: str, name: str, key: str) -> Any:
        assert answer(version, name)["refused"] is None
        return answer(version, name)["values"][key]

    return of
