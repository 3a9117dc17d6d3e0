"""max_steps 0, which newer releases take at its word."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for place in run.each("trainer", "max_steps"):
        if place.value == 0 and not isinstance(place.value, bool) and not place.document.is_view:
            yield Finding(
                "max_steps is 0: training ends after the first step",
                (place.label("not the same as -1"),),
                ("before 4.51 it meant no limit, and num_train_epochs decided",),
                "write max_steps: -1, or remove it",
                Fix((place.replaced(-1),), "safe"),
            )


def _trains(run: Run) -> Iterator[Finding]:
    train = run.said("trainer", "do_train")
    if run.of("axolotl") or (train is not None and train.value is False):
        return
    yield from _check(run)


RULE = Rule(
    name="max-steps-of-zero",
    severity="error",
    consequence="silent",
    consumers=("transformers>=4.51",),
    sources=(
        (
            "transformers 4.51.3 to 5.23.0 trainer.py `set_initial_training_values`: epoch_based = "
            "max_steps < 0; 4.40.2, 4.46.3 `_inner_training_loop`: if args.max_steps > 0"
        ),
        "transformers 5.23.0 run on CPU: 1 step of 12",
    ),
    check=_trains,
)
