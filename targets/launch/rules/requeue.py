"""Slurm jobs that are started again."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.place import Place, also
from tunec.compiler.lints.rule import Finding, rule

_RESUME: Final = (
    "resume_from_checkpoint",
    "auto_resume_from_checkpoints",
    "auto_resume_from_checkpoint",
)


@rule(
    "requeued-from-the-start",
    "warning",
    "silent",
    consumers=("transformers", "axolotl", "llamafactory"),
    sources=(
        "Slurm 24.05 sbatch manual page: --requeue, the batch script is initiated from its start",
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `resume_from_checkpoint`: not used by "
            "Trainer directly, meant for the scripts; trainer.py `train`: anew without it"
        ),
        (
            "llamafactory 0.9.5 hparams/parser.py `get_train_args`: get_last_checkpoint unless "
            "overwrite_output_dir; axolotl 0.19.0 train.py `determine_resume_checkpoint`"
        ),
    ),
    reads=("slurm:requeue",),
)
def requeued_from_the_start(run: LintContext) -> Iterator[Finding]:
    """Slurm starts a job again that does not go on where it was."""
    for batch in run.of("slurm"):
        again = batch.get("requeue")
        if again is None or again.value is False:
            continue
        documents = run.of("hf", *TRL, "llamafactory", "axolotl")
        mine = [each for each in documents if not each.is_view]
        if any(_resumes(each) for each in mine):
            continue
        for document in mine:
            found = _anew(document)
            if found is not None:
                yield _requeued(again, *found)
                break


def _resumes(document: Document) -> bool:
    said = (document.value(key) for key in _RESUME)
    return any(each not in (None, False, "") for each in said) or bool(
        document.unknown & set(_RESUME)
    )


def _anew(document: Document) -> tuple[Place | None, str] | None:
    """What makes it begin again, and why; None where its program looks for a checkpoint."""
    over, saves = document.get("overwrite_output_dir"), document.get("save_strategy")
    if over is not None and over.value is True:
        return over, "the directory is overwritten: no checkpoint is looked for in it"
    if saves is not None and saves.value in ("no", False):
        return saves, "no checkpoint is ever written"
    if document.kind == "llamafactory":
        return None  # it takes the last checkpoint of output_dir by itself
    if document.kind == "axolotl":
        return None, "Axolotl resumes only where auto_resume_from_checkpoints asks for it"
    return None, "the trainer resumes only when told to, unless the script does"


def _requeued(again: Place, beside: Place | None, why: str) -> Finding:
    return Finding(
        "the job is requeued, and starts from scratch each time",
        (again.key_label("Slurm runs the script again from its first line"), *also(beside)),
        (why, "hours of work are silently lost at each preemption"),
        "resume: resume_from_checkpoint, or auto_resume_from_checkpoints: true for Axolotl",
    )
