"""Numbers of TRL's CPO that its loss does not read, or that change the loss that is named."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.preference.asked import real
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LOSSES: Final = ("sigmoid", "hinge", "ipo", "simpo", "alphapo")
_SMOOTHED: Final = ("sigmoid", "simpo", "alphapo")
_MARGIN: Final = ("simpo", "alphapo")
_MARKS: Final = ("cpo_alpha", "simpo_gamma")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf"):
        if not document.is_view and any(document.get(key) for key in _MARKS):
            yield from _of_cpo(document)


def _of_cpo(document: Document) -> Iterator[Finding]:
    loss, gamma = document.get("loss_type"), document.get("simpo_gamma")
    word = loss.value if loss is not None else "sigmoid"
    if loss is not None and word not in _LOSSES:
        yield Finding(
            f"loss_type cannot be {word} in CPO",
            (loss.label("not known"),),
            ("it is looked up at the first step",),
            "write sigmoid, hinge, ipo or simpo",
            severity="error",
            consequence="step",
        )
    elif gamma is not None and word not in _MARGIN:
        yield Finding(
            f"simpo_gamma does nothing for the loss {word}",
            (gamma.label("not read"), *([loss.label("", primary=False)] if loss else [])),
            (),
            "write loss_type: simpo, or remove it",
        )
    elif loss is not None and word == "simpo":
        yield from _with_likelihood(document)
    smoothing = document.get("label_smoothing")
    share = real(smoothing.value) if smoothing is not None else None
    if smoothing is not None and share and word in _LOSSES and word not in _SMOOTHED:
        yield Finding(
            f"label_smoothing does nothing for the loss {word}",
            (smoothing.label("not read"),),
            (),
            "remove it",
        )


def _with_likelihood(document: Document) -> Iterator[Finding]:
    """CPO adds the likelihood of what was chosen, which SimPO is without."""
    loss, alpha = document.get("loss_type"), document.get("cpo_alpha")
    at = alpha or loss
    share = real(alpha.value) if alpha is not None else 1.0
    if at is None or not share:
        return
    yield Finding(
        f"loss_type simpo with cpo_alpha {share:g} is CPO-SimPO, and not SimPO",
        (at.label("adds the likelihood of the chosen answer"),),
        ("cpo_alpha is 1.0 where nothing is said; SimPO has no such term",),
        "write cpo_alpha: 0.0",
        severity="warning" if alpha is None else "note",
    )


RULE = Rule(
    name="cpo-loss-unfit",
    severity="warning",
    consequence="silent",
    consumers=("trl",),
    sources=(
        (
            "trl 0.12.2 to 0.24.0 trainer/cpo_trainer.py, 1.16.0 experimental/cpo/cpo_trainer.py "
            "`cpo_loss`: simpo_gamma only for simpo, label_smoothing for sigmoid and simpo, "
            "Unknown loss type; `get_batch_loss_metrics`: losses.mean() + cpo_alpha * "
            "policy_nll_loss; cpo_config.py: cpo_alpha 1.0"
        ),
    ),
    check=_check,
)
