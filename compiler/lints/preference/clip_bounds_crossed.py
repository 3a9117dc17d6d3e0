"""The ratio of a policy's update is cut at a bound that is on the wrong side."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.preference.asked import GROUPED, preferences, real, trl
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_EPSILON = 0.2
"""trl 0.17.0 to 1.16.0 grpo_config.py `epsilon`."""


def _check(run: Run) -> Iterator[Finding]:
    for document, method in preferences(run):
        if method in GROUPED:
            yield from _of(document)


def _of(document: Document) -> Iterator[Finding]:
    low_at, high_at = trl(document, "epsilon"), trl(document, "epsilon_high")
    low = real(low_at.value) if low_at is not None else _EPSILON
    high = real(high_at.value) if high_at is not None else None
    if high_at is not None and low is not None and high is not None and high < low:
        yield _finding(
            high_at,
            low_at,
            f"epsilon_high {high:g} is below epsilon {low:g}",
            "what raises a likely answer is cut sooner than what lowers it; DAPO has 0.28 over 0.2",
            "write 0.28, or remove epsilon_high",
        )
    top_at = trl(document, "delta")
    top, above = real(top_at.value) if top_at else None, high if high is not None else low
    if top_at is not None and top is not None and above is not None and top <= 1 + above:
        yield _finding(
            top_at,
            high_at or low_at,
            f"delta {top:g} is not above 1 + {above:g}",
            "the second bound of the two-sided loss lies beyond the first",
            "write 4.0, or remove delta",
        )


def _finding(at: Place, beside: Place | None, what: str, why: str, mended: str) -> Finding:
    return Finding(
        what,
        (at.label("cuts first"), *([beside.label("", primary=False)] if beside else [])),
        (why,),
        mended,
    )


RULE = Rule(
    name="clip-bounds-crossed",
    severity="warning",
    consequence="silent",
    consumers=("trl",),
    sources=(
        (
            "trl 0.17.0 to 1.16.0 trainer/grpo_trainer.py `_compute_loss`: torch.clamp(coef_1, "
            "1 - epsilon_low, 1 + epsilon_high), clamp(coef_1, max=delta); taken as it is by "
            "1.16.0; grpo_config.py: delta is recommended to be greater than 1 + epsilon"
        ),
        "arXiv 2503.14476 (DAPO), 3.1: epsilon_high 0.28 above epsilon_low 0.2",
    ),
    check=_check,
)
