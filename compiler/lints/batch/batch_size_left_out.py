"""Neither of the two batch sizes that DeepSpeed can begin from."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SIZES: Final = ("train_micro_batch_size_per_gpu", "train_batch_size")
_SHOWN: Final = 2
"""Sections of a file that shows no more than what its thread or manual speaks of."""
_REFERENCES: Final = (
    *("deepspeed", "deepspeed_config", "deepspeed_config.deepspeed_config_file"),
    "training_args.deepspeed",
)


def _check(run: Run) -> Iterator[Finding]:
    if run.of("simpletuner"):  # it writes its own batch size into the file
        return
    for document in run.of("deepspeed"):
        is_elastic = document.value("elasticity.enabled") is True  # which chooses them itself
        if document.is_view or is_elastic:
            continue
        if all(document.value(key) is None for key in _SIZES):
            yield _finding(run, document)


def _finding(run: Run, document: Document) -> Finding:
    steps = document.get("gradient_accumulation_steps")
    is_filled = run.deepspeed_reader == "trainer"
    return Finding(
        "neither train_micro_batch_size_per_gpu nor train_batch_size is given",
        (
            steps.label("the accumulation alone does not tell them")
            if steps is not None
            else Label("no batch size", document.start()),
        ),
        (
            "the trainer fills in a key that says auto, and adds none"
            if is_filled
            else "DeepSpeed derives the one from the other, and needs one to begin with",
        ),
        f'write "{_SIZES[0]}": ' + ('"auto"' if is_filled else "and a number"),
        certain=run.deepspeed_reader != "unknown",
        severity="warning" if _is_excerpt(run, document) else None,
    )


def _is_excerpt(run: Run, document: Document) -> bool:
    """Whether a file may be a part that somebody shows: few sections, and nobody refers to it."""
    if len(document.root.fields or ()) > _SHOWN:
        return False
    others = [each for each in run.documents if each is not document]
    return not any(isinstance(each.value(key), str) for each in others for key in _REFERENCES)


RULE = Rule(
    name="batch-size-left-out",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `_set_batch_related_parameters`: "
            "AssertionError, either train_batch_size or train_micro_batch_size_per_gpu needs to be "
            "provided"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.fill_match`: fills "
            "auto only; accelerator.py `_prepare_deepspeed`"
        ),
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/deepspeed.py "
            "`prepare_model_for_deepspeed`: sets train_micro_batch_size_per_gpu"
        ),
    ),
    check=_check,
)
