"""A truth value is given where a checkpoint's folder is asked for."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_WORDS: Final = ("true", "false", "none", "null", "auto", "last", "latest", "yes", "no")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf", *TRL, "llamafactory"):
        place = document.get("resume_from_checkpoint")
        if place is None or document.is_view:
            continue
        is_flag = document.format == "shell"
        text = str(place.value) if isinstance(place.value, bool) and is_flag else place.word
        if text is None or text.lower() not in _WORDS:
            continue
        is_off = text.lower() in ("false", "none", "null", "no")
        yield Finding(
            f"resume_from_checkpoint {text} is taken as the folder `{text}`",
            (place.label("no such folder"),),
            (
                "the field is text: trainer.train is handed it, and looks for such a folder",
                "a script may read the word itself, which is not seen here",
            ),
            "leave it out" if is_off else "write the folder of the checkpoint",
            Fix((place.removed(),), "unsafe") if is_off else None,
        )


RULE = Rule(
    name="resume-from-a-word",
    severity="warning",
    consequence="resume",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `resume_from_checkpoint: str | None`; "
            "trainer.py `train`: only False is None; `_load_from_checkpoint`: Can't find a valid "
            "checkpoint at"
        ),
    ),
    check=_check,
)
