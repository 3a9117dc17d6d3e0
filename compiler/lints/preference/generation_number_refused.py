"""A number of GRPO or RLOO that its generation cannot use."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.preference.asked import GROUPED, preferences, real, trl
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The numbers that a key may have, and what becomes of another."""

    key: str
    least: float
    most: float
    is_open: bool
    """Whether the least itself is not taken."""
    consequence: Consequence
    why: str


_LOOKED_AT: Final = "the sampler looks at it when the first answer is made"
_BOUNDS: Final = (
    _Bounds("num_iterations", 1, inf, False, "silent", "no batch is drawn: training ends at once"),
    _Bounds("steps_per_generation", 1, inf, False, "step", "the batch of answers is of that size"),
    _Bounds("max_completion_length", 1, inf, False, "init", "`max_new_tokens` is to be above 0"),
    _Bounds("repetition_penalty", 0, inf, True, "step", f"{_LOOKED_AT}; 1.0 is none"),
    _Bounds("min_p", 0, 1, False, "step", _LOOKED_AT),
    _Bounds("top_p", 0, 1, True, "silent", "outside of its range nothing is cut off"),
    _Bounds(
        "top_entropy_quantile", 0, 1, False, "step", "a quantile lies in the range from 0 to 1"
    ),
)


_TOP: Final = _Bounds("top_k", 0, inf, False, "step", _LOOKED_AT)
"""transformers 5.23.0 generation/logits_process.py `TopKLogitsWarper`, run: has to be a strictly
positive integer, but is -1; 0 is none, and to vLLM -1 is none too."""


def _check(run: Run) -> Iterator[Finding]:
    for document, method in preferences(run):
        by_vllm = trl(document, "use_vllm")
        plain = by_vllm is None or by_vllm.value in (False, "false")
        for bounds in (*_BOUNDS, *((_TOP,) if plain else ())) if method in GROUPED else ():
            at = trl(document, bounds.key)
            number = real(at.value) if at is not None else None
            if at is not None and number is not None and not _is_within(number, bounds):
                yield _finding(at, bounds)


def _is_within(number: float, bounds: _Bounds) -> bool:
    is_above = number > bounds.least if bounds.is_open else number >= bounds.least
    return is_above and number <= bounds.most


def _finding(at: Place, bounds: _Bounds) -> Finding:
    start = "above" if bounds.is_open else "from"
    end = f" to {bounds.most:g}" if bounds.most < inf else ""
    return Finding(
        f"{at.path} {at.value} is not {start} {bounds.least:g}{end or ' on'}",
        (at.label("cannot be used"),),
        (bounds.why,),
        "remove it" if bounds.most < inf or bounds.is_open or bounds is _TOP else "write 1 or more",
        consequence=bounds.consequence,
        severity="warning" if bounds.key == "top_p" else None,
    )


RULE = Rule(
    name="generation-number-refused",
    severity="error",
    consequence="step",
    consumers=("trl",),
    sources=(
        (
            "trl 0.17.0 to 1.16.0 trainer/grpo_trainer.py `_get_train_sampler` (repeat_count is "
            "num_iterations x steps_per_generation), `get_high_entropy_mask`; run with trl 1.16.0"
        ),
        (
            "transformers 5.23.0 generation/logits_process.py `RepetitionPenaltyLogitsProcessor`, "
            "`MinPLogitsWarper`, generation/utils.py `_get_logits_processor` (top_p below 1.0 "
            "alone is applied), configuration_utils.py `validate`"
        ),
    ),
    check=_check,
)
