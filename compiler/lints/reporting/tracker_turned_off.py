"""A variable turns a tracker off that the arguments ask for."""

from collections.abc import Iterator
from typing import Any

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    asked = [place for place in run.each("trainer", "report_to") if "wandb" in _words(place.value)]
    for document in launches(run):
        off = variable(document, "WANDB_DISABLED")
        place = _of_command(asked, document)
        if off is None or place is None or str(off.value).lower() not in ("1", "true", "yes", "on"):
            continue
        is_old = run.runs("transformers<5")
        yield Finding(
            "report_to asks for wandb, and WANDB_DISABLED turns it off",
            (place.label("asked for"), off.label("turned off", primary=False)),
            (
                "RuntimeError: WandbCallback requires wandb to be installed",
                "from transformers 5 on the variable is not read, and the run is reported",
            )[(is_old is False) :],
            "write report_to: none, or unset the variable",
            severity="warning" if is_old is not True else None,
            consequence="silent" if is_old is False else None,
        )


def _of_command(asked: list[Place], document: Document) -> Place | None:
    own = [place for place in asked if place.document.name == document.name]
    return next(iter((*own, *asked)), None)


def _words(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


RULE = Rule(
    name="tracker-turned-off",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 integrations/integration_utils.py `is_wandb_available`: "
            "WANDB_DISABLED; `WandbCallback.__init__`: RuntimeError; 5.0.0 to 5.23.0: not read"
        ),
    ),
    check=_check,
)
