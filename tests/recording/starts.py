"""One question of each program, which every run of the tests asks for real.

    python -m tests.recording.starts

fetches the packages for that, beside the checks that need none. All else that asks a program makes
its environment when it comes to it.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.recording.store import Answer, every

from tunec.compiler.consumers import runner
from tunec.compiler.consumers.prefetch import fetch

ROOTS: Final = {
    "tunec": Path(runner.__file__).parents[2],
    "lints": Path(__file__).parents[1] / "lints",
}
"""Where scripts lie, by the first part of their names."""
_READ_ONLY: Final = ("lints.consumers.axolotl_runs", "lints.consumers.llamafactory_runs")
"""Programs for which tunec writes nothing: the scripts of their targets only tell schemas."""


def starts() -> Mapping[str, Answer]:
    """For each program's script: the first of its answers where most of its questions are asked.

    A question that names a path is left out: what lies there is the business of its own test.
    """
    plain = {key: each for key, each in sorted(every().items()) if "«" not in each.question}
    scripts = sorted({each.script for each in plain.values()})
    return {
        script: _first(script, plain)
        for script in scripts
        if script.startswith("tunec.") or script in _READ_ONLY
    }


def _first(script: str, answers: Mapping[str, Answer]) -> Answer:
    own = [each for each in answers.values() if each.script == script]
    (pins, _), *_ = Counter(each.pins for each in own).most_common(1)
    return next(each for each in own if each.pins == pins)


if __name__ == "__main__":
    sys.stderr.writelines(fetch(pin for each in starts().values() for pin in each.pins))
