"""The model is to be pushed whenever it is saved, and it is never saved."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_AT_SAVES: Final = ("checkpoint", "all_checkpoints")
"""What is more than `every_save`, which is meant where nothing is said."""


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        yield from _found(document.get("hub_model_id"), document.get("save_strategy"))
    for document in run.of("trainer"):
        push, when = document.get("push_to_hub"), document.get("hub_strategy")
        is_on = push is not None and push.value is True and not document.is_view
        if is_on and when is not None and when.value in _AT_SAVES:
            yield from _found(when, document.get("save_strategy"))


def _found(at: Place | None, strategy: Place | None) -> Iterator[Finding]:
    if at is None or not at.value or strategy is None or strategy.value not in ("no", False):
        return
    yield Finding(
        f"{at.path} pushes what is saved, and save_strategy is no",
        (at.label("nothing is pushed while it trains"), strategy.label("", primary=False)),
        ("a run that is cut short leaves nothing on the hub",),
        "write save_strategy: epoch, or steps",
    )


RULE = Rule(
    name="hub-without-saves",
    severity="warning",
    consequence="silent",
    consumers=("transformers", "axolotl"),
    sources=(
        (
            "axolotl 0.8.1 to 0.19.0 utils/schemas/validation.py `check_push_save`: hub_model_id "
            "is set without any models being saved (a warning in the log)"
        ),
        "transformers 4.40.2 to 5.23.0 trainer.py `_save_checkpoint`: `_push_from_checkpoint`",
    ),
    check=_check,
)
