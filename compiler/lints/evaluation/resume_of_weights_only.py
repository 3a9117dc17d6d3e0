"""Training is to go on from checkpoints that hold weights only."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.batch.counts import engine_of
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for kind in ("trainer", "axolotl"):
        yield from _of(run, kind)


_LAST: Final = "auto_resume_from_checkpoints"
"""Axolotl's switch: on from the last checkpoint in the folder of this run."""


def _of(run: Run, kind: str) -> Iterator[Finding]:
    only = run.said(kind, "save_only_model")
    resume = run.said(kind, "resume_from_checkpoint") or run.said(kind, _LAST)
    if only is None or resume is None or only.value is not True:
        return
    folder = run.said(kind, "output_dir")
    if not resume.value or not _is_own(folder, resume.value):
        return
    engine = engine_of(run)
    yield Finding(
        f"{resume.path} from checkpoints of save_only_model",
        (resume.label("looks for states"), only.label("saves none", primary=False)),
        (
            f"{engine} finds no checkpoint of its own there, and stops"
            if engine
            else "the weights are loaded; optimizer, scheduler and random state begin anew, and "
            "only a line of the log says so",
        ),
        "remove save_only_model",
        severity="error" if engine == "DeepSpeed" and folder is not None else None,
        consequence="resume" if engine == "DeepSpeed" else "silent",
    )


def _is_own(folder: Place | None, value: Any) -> bool:
    """Whether it is a checkpoint that this run, with these settings, has written.

    A part of a file that leaves its folder out is taken to go on from its own.
    """
    if folder is None:
        return True
    if not isinstance(folder.value, str) or not isinstance(value, str):
        return value is True
    return value.removeprefix("./").startswith(folder.value.removeprefix("./").rstrip("/") + "/")


RULE = Rule(
    name="resume-of-weights-only",
    severity="warning",
    consequence="resume",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `_save_checkpoint`: states unless "
            "save_only_model; `_load_optimizer_and_scheduler`; integrations/deepspeed.py "
            "`deepspeed_load_checkpoint`: ValueError, can't find a valid checkpoint"
        ),
    ),
    check=_check,
)
