"""A loss of preferences that LLaMA-Factory takes and that TRL does not compute."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LATE: Final = "llamafactory>=0.9.4"
_ASKED: Final = "trl>=0.20"
_OTHERS: Final = ("hinge", "ipo")
"""Of LLaMA-Factory's words: sigmoid is computed by default, orpo and simpo by itself; of kto_pair
`dpo-loss-unknown` speaks."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        at, stage = document.get("pref_loss"), document.value("stage")
        if at is None or document.is_view or stage != "dpo" or at.value not in _OTHERS:
            continue
        if run.runs(_LATE) is not False and run.runs(_ASKED) is not False:
            yield _as_sigmoid(run, at)


def _as_sigmoid(run: Run, at: Place) -> Finding:
    is_named = run.runs(_LATE) is True
    late = () if is_named else ("so from LLaMA-Factory 0.9.4 on: nobody names its version",)
    return Finding(
        f"pref_loss {at.value} is trained as sigmoid",
        (at.label("not handed on"),),
        (
            "from 0.20 on TRL's dpo_loss is told the loss by an argument, sigmoid where it is not",
            "LLaMA-Factory calls it without one",
            *late,
        ),
        "use LLaMA-Factory 0.9.3, or TRL below 0.20",
        severity=None if is_named else "warning",
    )


RULE = Rule(
    name="preference-loss-not-computed",
    severity="error",
    consequence="silent",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 train/dpo/trainer.py `compute_preference_loss`: "
            "self.dpo_loss of four tensors; extras/misc.py `check_dependencies`: "
            "trl>=0.8.6,<=0.9.6 until 0.9.3, trl>=0.18.0,<=0.24.0 from 0.9.4 on"
        ),
        (
            "trl 0.9.6 to 0.19.0 trainer/dpo_trainer.py `DPOTrainer.dpo_loss`: self.loss_type; "
            "0.20.0 to 0.24.0: the argument loss_type, sigmoid by default"
        ),
    ),
    check=_check,
)
