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
    for document in run.of("llamafactory"):
        layers = document.get("freeze_trainable_layers")
        if document.value("finetuning_type") != "freeze" or document.get("freeze_extra_modules"):
            continue
        if layers is not None and layers.value == 0 and layers.value is not False:
            yield Finding(
                "freeze_trainable_layers is 0: no layer is trained",
                (layers.label("no layer"),),
                ("above 0 it counts from the last layer, below 0 from the first",),
                "write the number of layers, as 2",
                consequence="init",
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
    consumers=("transformers", "llamafactory"),
    sources=(
        (
            "transformers 5.23.0 trainer.py `set_initial_training_values`: max_steps = "
            "ceil(num_train_epochs * steps); run on CPU with 0 epochs: 0 steps, with rate 0: "
            "no change"
        ),
        (
            "llamafactory 0.9.5 model/adapter.py `_setup_freeze_tuning`; torch 2.13.0 "
            "optim/optimizer.py: optimizer got an empty parameter list"
        ),
    ),
    check=_check,
)
