"""Settings of one tracker, and another one that is told."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = ("project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id")
_READER: Final = "trackio"
_EVERY: Final = "all"


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf", *TRL):
        told = document.get("report_to")
        if document.is_view or told is None or "report_to" in document.unknown:
            continue
        names = _names(told.value)
        if not names or names & {_READER, _EVERY}:
            continue
        for key in _KEYS:
            place = document.get(key)
            if place is not None and place.value:
                yield Finding(
                    f"{key} does nothing: report_to is {', '.join(sorted(names))}",
                    (place.label("not read"), told.label("", primary=False)),
                    ("Trackio alone is given it; wandb reads the variable WANDB_PROJECT",),
                    "write report_to: trackio, or remove it",
                )


def _names(value: Any) -> set[str]:
    """The trackers; none where it is no word, or a variable's."""
    words = value if isinstance(value, list) else [value]
    return {each for each in words if isinstance(each, str)}


RULE = Rule(
    name="tracker-keys-unread",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.57.6 to 5.23.0 integrations/integration_utils.py "
            "`TrackioCallback.setup`: the one reader of args.project; `WandbCallback.setup`: "
            "WANDB_PROJECT"
        ),
    ),
    check=_check,
)
