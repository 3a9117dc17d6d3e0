"""Warns about data that cannot fill a batch, or that the run sees too often."""

from typing import Final

from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Scribe

_FEW: Final = 10
"""Runs with fewer steps hardly change the model: a judgement, reported as a note."""
_MANY: Final = {"diffusion": 1000.0}
_MANY_OF_TEXT: Final = 100.0
"""Epochs above which a warning is given. Text is memorised after a few (Muennighoff et al., arXiv
2305.16264: little is gained after 4, nothing after 40), though VisualGLM's own recipe makes 60; a
subject of a few images takes hundreds (DreamBooth, arXiv 2208.12242: 1,000 steps over 3 to 5
images)."""


def check_data(scribe: Scribe, draft: Draft, steps: int | None, passes: float | None) -> None:
    """Report data that are too few for the batch or for the steps.

    `steps` of the run and `passes` over the data are None if they are unknown.
    """
    rows = draft.data.samples
    a_step = draft.batch.global_ // max(draft.generation.samples, 1)
    if rows is not None and rows < a_step:
        _unfilled(scribe, draft, rows, a_step)
    elif steps is not None and steps < _FEW and not _is_asked(scribe):
        _few_steps(scribe, draft, steps)
    if rows is None or steps is None or passes is None:
        return
    if passes > _MANY.get(draft.model.kind, _MANY_OF_TEXT):
        _many_epochs(scribe, rows, steps, passes)


def _is_asked(scribe: Scribe) -> bool:
    """Whether the number of steps is given, and therefore intended."""
    return scribe.facts.spec.train.steps is not None or "schedule.steps" in scribe.facts.pins


def _unfilled(scribe: Scribe, draft: Draft, rows: int, a_step: int) -> None:
    batch, answers = draft.batch.global_, draft.generation.samples
    if answers:
        scribe.error(
            "E0804",
            f"{rows} prompts do not fill a step: a global batch of {batch} holds {answers} "
            f"answers to {a_step} prompts",
            "data.samples",
            notes=("trl's RepeatSampler drops an incomplete step, so no data is left",),
            help=f"lower batch.global to {rows * answers} or less, or give more prompts",
        )
        return
    scribe.report(
        "few-samples",
        "warning",
        f"{rows} sample{'' if rows == 1 else 's'} cannot fill a batch of {batch}",
        "data.samples",
        notes=(f"each epoch is one step, whose batch has {rows} of {batch} samples",),
        help=f"lower batch.global to {rows} or less, or give more data",
    )


def _few_steps(scribe: Scribe, draft: Draft, steps: int) -> None:
    scribe.report(
        "few-steps",
        "note",
        f"the run makes {steps} optimizer step{'' if steps == 1 else 's'} of "
        f"{draft.batch.global_} samples",
        "data.samples",
        help="lower batch.global, or raise train.epochs",
    )


def _many_epochs(scribe: Scribe, rows: int, steps: int, passes: float) -> None:
    at = "train.steps" if scribe.facts.spec.train.steps is not None else "train.epochs"
    scribe.report(
        "many-epochs",
        "warning",
        f"{steps:,} steps are {passes:,.0f} passes over {rows:,} samples",
        at,
        notes=(f"{steps:,} steps / {steps / passes:,.0f} of one pass",),
        help=f"lower {at}, or give more data",
    )
