"""The trainer removes the columns that the collator of a model that sees needs."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.adapter.lora import is_minicpm
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.vision.seeing import sees

_GLM: Final = "training_args.remove_unused_columns"
_OUTPUT: Final = {_GLM: "training_args.output_dir", "remove_unused_columns": "output_dir"}
"""An argument that must be written beside it."""


_KEPT: Final = "trl>=0.22"
"""Releases that keep the columns of messages and images."""


def _check(run: Run) -> Iterator[Finding]:
    yield from _of_own_collator(run)
    for document in run.documents:
        if document.kind not in ("hf", "glm4") and not is_minicpm(document):
            continue
        key = _GLM if document.kind == "glm4" else "remove_unused_columns"
        if document.kind != "hf" and document.get(_OUTPUT[key]) is None:
            continue  # the launcher's part of a script: the trainer's arguments stand elsewhere
        if document.is_view or key in document.unknown or not _sees(run, document):
            continue
        at = document.get(key)
        if at is not None and at.value is not True:
            continue
        start = at or next(iter(document.found.values()), None)
        if start is None or (at is None and document.kind == "hf"):
            continue
        edit = Fix((at.replaced(value=False),), "safe") if at is not None else None
        yield Finding(
            f"remove_unused_columns is true{'' if at is not None else ' where nobody says it'}: "
            "images do not reach the collator",
            (start.label("removes what forward does not name"),),
            ("the model's forward has no arguments of the data's own column names",),
            "write remove_unused_columns: false",
            edit,
        )


def _of_own_collator(run: Run) -> Iterator[Finding]:
    """TRL's trainer of samples before 0.22 leaves images to a collator of the script's own."""
    if run.runs(_KEPT) is True or not sees(run):
        return
    for document in run.of("sft"):
        skip = where(document, "dataset_kwargs.skip_prepare_dataset=true")
        at = document.get("remove_unused_columns")
        is_left = at is None and run.runs(_KEPT) is False
        if skip is None or document.is_view or not (is_left or (at is not None and at.value)):
            continue
        yield Finding(
            "remove_unused_columns is true: images do not reach the script's own collator",
            ((at or skip).label("removes what forward does not name"),),
            ("No columns in the dataset match the model's forward method signature",),
            "write remove_unused_columns: false",
            Fix((at.replaced(value=False),), "safe") if at is not None else None,
        )


def _sees(run: Run, document: Document) -> bool:
    return is_minicpm(document) or sees(run)


RULE = Rule(
    name="columns-of-images-removed",
    severity="warning",
    consequence="step",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `_remove_unused_columns`, "
            "`_get_collator_with_removed_columns`: columns that forward's signature lacks"
        ),
        (
            "trl 0.21.0 trainer/sft_trainer.py: the columns of input_ids; 0.22.2 "
            "`_set_signature_columns_if_needed`: messages, prompt, completion, images"
        ),
        (
            "OpenBMB/MiniCPM-V 0dbb566 finetune/finetune_lora.sh: --remove_unused_columns false; "
            "THUDM/GLM-4 3f79b54 configs/lora.yaml"
        ),
    ),
    check=_check,
)
