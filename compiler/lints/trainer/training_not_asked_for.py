"""An example script of transformers is started with flags of training, and not told to train."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.examples import example_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TASKS: Final = ("do_train", "do_eval", "do_predict")
_OF_TRAINING: Final = (
    *("num_train_epochs", "max_steps", "learning_rate", "per_device_train_batch_size"),
    *("gradient_accumulation_steps", "train_file", "save_steps", "warmup_steps", "warmup_ratio"),
)


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf", "sft"):
        if document.format != "shell" or any(document.get(each) for each in _TASKS):
            continue
        asked = next((each for key in _OF_TRAINING if (each := document.get(key))), None)
        script = example_of(run, document)
        if asked is not None and script is not None:
            yield Finding(
                "nothing is trained: --do_train is left out",
                (script.label("does what --do_train asks"), asked.label("", primary=False)),
                (
                    "the examples load model and data, and end where no task is asked for",
                    "an eval_strategy asks for evaluation, not for training",
                ),
                "add --do_train",
            )


RULE = Rule(
    name="training-not-asked-for",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 examples/pytorch/language-modeling/run_clm.py `main`: "
            "if training_args.do_train; training_args.py `do_train`: False by default"
        ),
    ),
    check=_check,
)
