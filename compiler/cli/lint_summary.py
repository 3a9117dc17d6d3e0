"""Summarises the files that `tunec lint` read: how many of each kind, and what it skipped."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tunec.compiler.cli.session import Session
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.fleet.progress import Progress
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.lint import Linted
from tunec.compiler.lints.suppression import is_unproven

_FEW: Final = 3
_KINDS: Final[Mapping[str, str]] = {
    "deepspeed": "DeepSpeed",
    "accelerate": "accelerate",
    "hf": "training arguments",
    "model": "model arguments",
    "peft": "PEFT",
    **dict.fromkeys(TRL, "TRL"),
    "llamafactory": "LLaMA-Factory",
    "axolotl": "Axolotl",
    "simpletuner": "SimpleTuner",
    "sd-scripts": "of sd-scripts",
    "musubi-tuner": "of musubi-tuner",
    "ai-toolkit": "of ai-toolkit",
    "torchtune": "of torchtune",
    "lycoris": "LyCORIS",
    "kubeflow": "Kubeflow",
    "skypilot": "SkyPilot",
}
"""Names for kinds of files; other kinds have the name of their program."""
_SCRIPTS: Final = "launch scripts"
_OF_DATA: Final = "-data"


def summary(linted: Linted) -> str | None:
    """`read 14 files: 5 DeepSpeed, 3 launch scripts; 2 skipped: no known program reads ...`.

    None if no file could be read, since each is a finding then.
    """
    kinds = kinds_of_files(linted)
    skipped = linted.passed_over
    others = {name for each in linted.runs for name in (file.name for file in each.unread)}
    total = len(kinds) + len(others - kinds.keys()) + len(skipped)
    if total == 0:
        return None
    counted = Counter(kinds.values())
    told = [f"{count} {_of(kind, count)}" for kind, count in counted.most_common()]
    told += [f"{len(others - kinds.keys())} of no known kind"] if others - kinds.keys() else []
    text = f"read {total} {'file' if total == 1 else 'files'}"
    text += f": {', '.join(told)}" if told else ""
    return f"{text}; {_skipped(skipped)}" if skipped else text


def _skipped(names: Sequence[str]) -> str:
    more = [f"{len(names) - _FEW} more"] if len(names) > _FEW else []
    said = joined((*names[:_FEW], *more), "and")
    return f"{len(names)} skipped: no known program reads {said}"


def kinds_of_files(linted: Linted) -> dict[str, str]:
    """The kind of each file by its name; a script that starts training is a launch script."""
    found: dict[str, str] = {}
    for run in linted.runs:
        for document in filter(_is_a_file, run.documents):
            kind = _kind(document)
            if kind == _SCRIPTS or document.name not in found:
                found[document.name] = kind
    return found


def _is_a_file(document: Document) -> bool:
    return not document.is_view and document.kind != "checkpoint"


def _kind(document: Document) -> str:
    if document.kind in ("launch", "slurm"):
        return _SCRIPTS
    if document.kind.endswith(_OF_DATA):
        return "data sets"
    return _KINDS.get(document.kind, document.kind)


def _of(kind: str, count: int) -> str:
    plural = kind.endswith("ts") and kind not in (
        *("training arguments", "model arguments", "of sd-scripts"),
    )
    return kind.removesuffix("s") if count == 1 and plural else kind


class ProgressLine:
    """A progress line on stderr while files are read and runs are checked."""

    def __init__(self, session: Session) -> None:
        self._stream = session.stderr if session.stderr.isatty() else None
        self._progress: Progress | None = None

    def step(self, what: str, total: int) -> None:
        """Count one more."""
        if self._stream is None:
            return
        if self._progress is None or self._progress.what != what:
            self._progress = Progress(total, self._stream, what)
        self._progress.step()

    def end(self) -> None:
        """Clear the progress line."""
        if self._progress is not None:
            self._progress.end()


def notes(linted: Linted) -> Iterator[str]:
    """Further notes: how files were grouped, and how many findings were lowered."""
    runs = sum(1 for each in linted.runs if each.documents)
    if runs > 1:
        are_commands = any(each.beside for each in linted.runs)
        why = "a script has several commands" if are_commands else "several files are of one kind"
        yield f"read as {runs} runs, since {why}"
    for folder in linted.cut_short:
        yield f"{folder} holds too many files to read at once: name a folder inside it"
    for folder in linted.crowded:
        yield f"{folder}: {_CROWDED}"
    lowered = sum(map(is_unproven, linted.diagnostics))
    if lowered:
        yield f"{'1 finding' if lowered == 1 else f'{lowered} findings'} {_LOWERED}"


_LOWERED: Final = (
    "shown below the usual level, because the rule was wrong too often in public repositories: "
    "name the files, or give --software or --hardware, to see the usual levels"
)
_CROWDED: Final = (
    "too many files could be used with too many others, so each is read without the others: name "
    "the files of one run in one call"
)
