"""What ms-swift makes of its arguments when a model is loaded."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import FOLDER, refusal  # noqa: E402
from test_scripts import asked  # noqa: E402

from tunec.compiler.consumers.sets import choose  # noqa: E402
from tunec.targets.ms_swift.packages import RELEASES  # noqa: E402


@pytest.mark.parametrize("release", RELEASES[1:])
def test_bits_alone_quantise_nothing(release: str) -> None:
    """bits-without-method"""
    every = ({"quant_bits": 4}, {"quant_bits": 4, "quant_method": "bnb"})
    questions: list[dict[str, Any]] = [{"verb": "quantise", "arguments": each} for each in every]
    pins = choose("ms-swift", release).requirements
    alone, named = asked(pins, "lints.consumers.ms_swift_looks", questions, FOLDER)
    assert alone == {"config": None}
    assert refusal(named) == ""
    assert named["config"]["load_in_4bit"] is True
