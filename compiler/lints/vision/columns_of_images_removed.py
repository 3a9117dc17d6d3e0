"""The trainer removes the columns that the collator of a model that sees needs."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.adapter.lora import is_minicpm
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_GLM: Final = "training_args.remove_unused_columns"
_OUTPUT: Final = {_GLM: "training_args.output_dir", "remove_unused_columns": "output_dir"}
"""An argument that must be written beside it."""


def _check(run: Run) -> Iterator[Finding]:
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


def _sees(run: Run, document: Document) -> bool:
    if is_minicpm(document):
        return True
    return run.model is not None and run.model.architecture.kind == "vision-language"


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
            "OpenBMB/MiniCPM-V 0dbb566 finetune/finetune_lora.sh: --remove_unused_columns false; "
            "THUDM/GLM-4 3f79b54 configs/lora.yaml"
        ),
    ),
    check=_check,
)
