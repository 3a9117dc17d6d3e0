"""A run has a name, and nobody is told of it."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SIGNS: Final = ("run_name", "logging_dir")
_VARIABLES: Final = ("WANDB_PROJECT", "WANDB_NAME", "TENSORBOARD_LOGGING_DIR", "MLFLOW_RUN_ID")


def _check(run: Run) -> Iterator[Finding]:
    documents = [each for each in run.of("hf", *TRL) if not each.is_view]
    if not documents or any("report_to" in each.unknown for each in documents):
        return
    if run.said("trainer", "report_to") is not None:
        return
    sign = next((p for key in _SIGNS for d in documents if (p := d.get(key))), None) or _set(run)
    if sign is None:
        return
    yield Finding(
        f"{sign.path.rpartition('.')[2]} is set, and report_to is left out: nothing is reported",
        (sign.label("for a tracker"),),
        ("before 5.0 every installed tracker was told; now none is unless report_to names it",),
        "write report_to: wandb, or tensorboard",
    )


def _set(run: Run) -> Place | None:
    found = (each for document in run.of("launch") for each in document.found.values())
    return next((each for each in found if each.path.rpartition(".")[2] in _VARIABLES), None)


RULE = Rule(
    name="nothing-is-reported",
    severity="warning",
    consequence="silent",
    consumers=("transformers>=5",),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 training_args.py `__post_init__`: report_to None is "
            "all; 5.0.0 to 5.23.0: its default is none"
        ),
    ),
    check=_check,
)
