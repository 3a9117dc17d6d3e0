"""No epochs, or a learning rate of zero."""

from collections.abc import Iterator

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import total_steps


def _check(run: Run) -> Iterator[Finding]:
    train = run.said("trainer", "do_train")
    if train is not None and train.value is False:
        return
    for place in run.each("trainer", "num_train_epochs"):
        if place.document.get("max_train_steps") or total_steps(run) is not None:
            continue  # steps by the words of a script of diffusers
        if is_number(place.value) and place.value <= 0:
            yield Finding(
                f"{place.path} is {place.value}: training ends before the first step",
                (place.label("no step"),),
                ("the model is saved as it was loaded, and nothing is said",),
                "write 1 or more, or max_steps",
            )
    for place in run.each("trainer", "learning_rate"):
        if is_number(place.value) and place.value == 0:
            yield Finding(
                "learning_rate is 0: every step leaves the model as it is",
                (place.label("no change"),),
                (),
                "write the rate",
            )


RULE = Rule(
    name="nothing-is-trained",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 5.23.0 trainer.py `set_initial_training_values`: max_steps = "
            "ceil(num_train_epochs * steps); run on CPU with 0 epochs: 0 steps, with rate 0: "
            "no change"
        ),
    ),
    check=_check,
)
