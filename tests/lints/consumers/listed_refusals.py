"""Listed refusals of Kohya's scripts, held against the scripts' own functions."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from test_scripts import asked
from tests.lints.lint_pages import Example
from tests.lints.refusals import Refusal

Question = Callable[[str, tuple[str, ...], str | None, str | None], dict[str, Any]]
"""From a program, its flags, its config and its data to what it is asked."""
Answers = tuple[Mapping[str, Any], Mapping[str, Any]]
"""About the bad form of a case, and about its mended form."""


def answers(
    cases: Sequence[Refusal], question: Question, requirements: tuple[str, ...], script: str
) -> Mapping[str, Answers]:
    """What the program answers about each case, by the case's name; all are asked at once."""
    forms = [each for case in cases for each in (case.bad, case.mended)]
    told = iter(asked(requirements, script, [_asking(each, question) for each in forms]))
    return {case.id: (next(told), next(told)) for case in cases}


def _asking(given: Example, question: Question) -> dict[str, Any]:
    """The question about an example's command, whose data is given as a text where it is TOML."""
    words = shlex.split(given.files["train.sh"].replace("\\\n", " "))
    script = next(at for at, word in enumerate(words) if word.endswith(".py"))
    argv, data = words[script + 1 :], None
    if "data.toml" in argv:
        at = argv.index("data.toml")
        del argv[at - 1 : at + 1]
        data = given.files["data.toml"]
    return question(PurePath(words[script]).stem, tuple(argv), None, data)
