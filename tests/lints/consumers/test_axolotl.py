"""What Axolotl hands on and what it leaves, asked of its own loader and builders."""

import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import FOLDER, example  # noqa: E402
from test_scripts import asked  # noqa: E402

from tunec.compiler.consumers.queries import ConsumerFailed  # noqa: E402
from tunec.compiler.consumers.sets import choose, together  # noqa: E402

_ASKED: Final = {
    "four-bits-without-qlora": "quantise",
    "best-model-not-loaded": "train",
    "number-of-another-method": "prefer",
    "kernels-passed-over": "patch",
}


@cache
def answers() -> dict[tuple[str, str], Any]:
    """Of one release, in one process: importing it takes longer than any question."""
    import yaml

    wanted = [(rule, kind) for rule in _ASKED for kind in ("bad", "good")]
    texts = [next(iter(example(*each, 0).files.values())) for each in wanted]
    questions = [
        {"verb": _ASKED[rule], "config": yaml.safe_load(text)}
        for (rule, _), text in zip(wanted, texts, strict=True)
    ]
    pins = together(choose("axolotl", "0.13.2"), choose("transformers", "4.57.6"))
    told = asked(pins, "lints.consumers.axolotl_builds", questions, FOLDER)
    return dict(zip(wanted, told, strict=True))


def answer(rule: str, kind: str) -> Any:
    """What is said of a rule's example, where nothing went wrong."""
    found = answers()[rule, kind]
    if isinstance(found, ConsumerFailed):
        raise found
    return found


def test_an_adapter_decides_the_bits_of_its_base() -> None:
    """four-bits-without-qlora"""
    assert answer("four-bits-without-qlora", "bad") == {"bits": None}
    assert answer("four-bits-without-qlora", "good") == {"bits": 4}


def test_the_best_model_is_loaded_where_both_intervals_are_known() -> None:
    """best-model-not-loaded"""
    assert answer("best-model-not-loaded", "bad")["load_best_model_at_end"] is False
    assert answer("best-model-not-loaded", "good")["load_best_model_at_end"] is True


def test_a_method_is_given_its_own_numbers() -> None:
    """number-of-another-method"""
    assert "simpo_gamma" not in answer("number-of-another-method", "bad")
    assert answer("number-of-another-method", "good")["simpo_gamma"] == 0.5


def test_kernels_of_adapters_have_no_dropout() -> None:
    """kernels-passed-over"""
    told = answer("kernels-passed-over", "bad")
    assert "requires no dropout" in told["warned"]
    assert not told["patched"]
    assert answer("kernels-passed-over", "good") == {"warned": "", "patched": True}
