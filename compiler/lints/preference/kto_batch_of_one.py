"""KTO takes one sample at once, and has nothing to estimate its KL term with."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.preference.asked import preferences, shared
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document, name in preferences(run):
        at = shared(document, "per_device_train_batch_size")
        if name != "kto" or at is None or at.value != 1:
            continue
        yield Finding(
            "KTO with one sample on a device at once",
            (at.label("needs 2 or more"),),
            ("the KL term comes from other samples of the batch; accumulation does not count",),
            "write 2 or more, and halve the accumulation",
            severity=None if _is_asked(run, document) else "warning",
            consequence=None if _is_asked(run, document) else "silent",
        )


def _is_asked(run: Run, document: Document) -> bool:
    """Whether the trainer looks: LLaMA-Factory's does not, nor TRL's from 0.26 to 1.7."""
    is_trl = document.kind == "kto" and not run.runs("trl>=0.26,<1.8")
    return document.kind == "axolotl" or is_trl


RULE = Rule(
    name="kto-batch-of-one",
    severity="error",
    consequence="init",
    consumers=("trl",),
    sources=(
        (
            "trl 0.12.2 to 0.25.1, 1.8.0 to 1.16.0 trainer/kto_trainer.py: Actual (not effective) "
            "batch size must be > 1"
        ),
        (
            "llamafactory 0.9.5 train/kto/trainer.py `CustomKTOTrainer` does not ask: a batch of "
            "one is its own comparison"
        ),
    ),
    check=_check,
)
