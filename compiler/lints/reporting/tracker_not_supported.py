"""A tracker that the trainer does not know."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, shown
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KNOWN: Final = (
    *("azure_ml", "comet_ml", "mlflow", "neptune", "tensorboard", "trackio", "wandb"),
    *("codecarbon", "clearml", "dagshub", "flyte", "dvclive", "swanlab", "kubeflow", "none", "all"),
)
"""transformers 4.40.2 to 5.23.0 integrations/integration_utils.py INTEGRATION_TO_CALLBACK."""
_NOTHING: Final = ("None", "False", "null", "no")
"""Words for no tracker that are none of the trainer's, also on a command line."""
_MEANT: Final = {
    "None": "none",
    "False": "none",
    "null": "none",
    "no": "none",
    "comet": "comet_ml",
    "tb": "tensorboard",
    "weights_and_biases": "wandb",
}


def _check(run: Run) -> Iterator[Finding]:
    for place in run.each("trainer", "report_to"):
        if place.document.is_view:
            continue
        if place.document.format == "shell" and place.value not in _NOTHING:
            continue  # other programs have trackers of their own
        for name in _names(place.value):
            if name is None and run.runs("transformers<5"):
                continue  # None is every tracker there
            if name not in _KNOWN:
                yield _finding(place, name)


def _names(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _finding(place: Place, name: Any) -> Finding:
    word = isinstance(name, str)
    near = [_MEANT[name]] if word and name in _MEANT else nearest(name, _KNOWN) if word else []
    mend = near[0] if len(near) == 1 else None if word else "none"
    fix = Fix((place.replaced(mend),), "safe" if not word else "unsafe") if mend else None
    return Finding(
        f"report_to {shown(name)} is no tracker",
        (place.label("not supported"),),
        ()
        if word
        else ("YAML reads no and off as false, and an empty value as null; the word is none",),
        did_you_mean(near) or ("write report_to: none" if not word else None),
        fix if not isinstance(place.value, list) else None,
    )


RULE = Rule(
    name="tracker-not-supported",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 integrations/integration_utils.py "
            "`get_reporting_integration_callbacks`: ValueError, is not supported, only ...; "
            "training_args.py `__post_init__`: report_to = [report_to]"
        ),
    ),
    check=_check,
)
