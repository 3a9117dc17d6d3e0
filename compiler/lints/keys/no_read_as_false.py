"""`no` without quotes, which YAML 1.1 reads as false."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = ("eval_strategy", "evaluation_strategy", "save_strategy", "logging_strategy")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf", *TRL, "llamafactory", "axolotl"):
        if document.is_view:
            continue
        for key in _KEYS:
            place = document.get(key)
            if place is not None and place.value is False and document.format == "yaml":
                yield Finding(
                    f"`{key}` is false, and not the word no",
                    (place.label("read as false"),),
                    ("YAML 1.1 reads an unquoted no as false, and false is no strategy",),
                    'write "no"',
                    Fix((place.replaced("no"),), "safe"),
                )


RULE = Rule(
    name="no-read-as-false",
    severity="error",
    consequence="parse",
    consumers=("transformers", "axolotl"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments.__post_init__`: "
            "IntervalStrategy(False) raises ValueError"
        ),
        "axolotl 0.8.1 to 0.19.0 utils/schemas/config.py: save_strategy, eval_strategy: str",
        "YAML 1.1 type repository, bool (yaml.org/type/bool.html)",
    ),
    check=_check,
)
