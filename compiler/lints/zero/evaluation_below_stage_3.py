"""Evaluation without training by a ZeRO stage that shards no parameters."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.examples import starts_an_example
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_TASKS: Final = ("do_eval", "do_predict")


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    if not run.of("deepspeed") or stage.value not in (0, 1, 2):
        return
    for document in run.of("hf", "sft"):
        task = _alone(document)
        if task is None:
            continue
        yield Finding(
            f"{task.path} without do_train, by ZeRO stage {stage.value}",
            (task.label("no optimizer is made"), *also(stage.place, "shards optimizer states")),
            (
                "the trainer starts DeepSpeed for inference, and refuses all stages but 3",
                "stages 1 and 2 shard what only training has",
            ),
            "use stage 3, or evaluate without DeepSpeed",
            certain=document.value("do_train") is False or starts_an_example(run, document),
        )


def _alone(document: Document) -> Place | None:
    """What a file asks for beside training, where it asks for no training.

    A script that trains whatever `do_train` says is not seen: flags that leave it out tell nothing
    certain, unless the script is one of the examples, which ask for it.
    """
    trains = document.value("do_train")
    if trains is True or (trains is None and document.format != "shell"):
        return None
    found = (document.get(key) for key in _TASKS)
    return next((place for place in found if place is not None and place.value is True), None)


RULE = Rule(
    name="evaluation-below-stage-3",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `deepspeed_init`: ZeRO "
            "inference only makes sense with ZeRO Stage 3"
        ),
        "deepspeedai/DeepSpeed#4526, zai-org/ChatGLM3#864",
    ),
    check=_check,
)
