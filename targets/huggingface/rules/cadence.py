"""Rules about when a run evaluates and saves, and from where it resumes."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.training_loop import (
    ScheduleNumber,
    engine_of,
    is_number,
    is_positive,
    is_whole,
    means_never,
    never_evaluates,
    strategy_of,
    total_steps,
)
from tunec.compiler.lints.python_files import calls_of
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace


@rule(
    "warning",
    "silent",
    consumers=("transformers",),
    reads=keys("trainer", "eval_steps", "eval_delay"),
)
def evaluation_after_the_end(run: LintContext) -> Iterator[Finding]:
    """The first evaluation would come after the last step."""
    total = total_steps(run)
    for document in run.of("trainer"):
        yield from _delayed(document, total)
        every, said = document.get("eval_steps"), strategy_of(document)
        if total is None or every is None or not is_whole(every.value):
            continue
        if said is None or said.value != "steps" or every.value <= total.value:
            continue
        if means_never(every.value, total.value):
            continue
        late = run.runs("transformers>=5.6")
        yield Finding(
            f"eval_steps {every.value} lies beyond the last of {total.value} steps",
            (every.label("after the last step"), total.place.label("", primary=False)),
            (
                "from 5.6 on there is one evaluation, at the end"
                if late
                else "there is no evaluation before 5.6, and one at the end since",
            ),
            f"write eval_steps: {max(total.value // 10, 1)}",
            sum=(Term("interval", every.value, "steps"), Term("training", total.value, "steps")),
        )


def _delayed(document: Document, total: ScheduleNumber | None) -> Iterator[Finding]:
    """`eval_delay` exceeds the run; it counts in steps or epochs, as the strategy does."""
    delay, said = document.get("eval_delay"), strategy_of(document)
    if delay is None or not is_number(delay.value) or said is None:
        return
    epochs = document.get("num_train_epochs")
    last: int | float
    if said.value == "steps" and total is not None:
        last, place, unit = total.value, total.place, "steps"
    elif said.value == "epoch" and total is None and epochs and is_number(epochs.value):
        last, place, unit = epochs.value, epochs, "epochs"
    else:
        return
    if delay.value > last > 0:
        yield Finding(
            f"eval_delay {delay.value} of {last} {unit} in all",
            (delay.label("after the end"), place.label("", primary=False)),
            ("there is no evaluation before the delay is over",),
            "write a smaller eval_delay",
        )


_UNSAVED: Final = Row(
    "trainer:save_steps=0|0.0",
    "save_steps {0.value}: no checkpoint is written before the end",
    label="never",
    why="a run that is stopped has to start from scratch",
    help="write an interval, or save_strategy: no",
    beside=("no load_best_model_at_end=true",),
)

interval_of_zero = rows(
    "interval-of-zero",
    "warning",
    "silent",
    consumers=("transformers",),
    rows=(
        replace(_UNSAVED, beside=("no save_strategy", *_UNSAVED.beside)),
        replace(_UNSAVED, beside=("save_strategy=steps|null", *_UNSAVED.beside)),
        Row(
            "trainer:eval_steps=0|0.0 & eval_strategy|evaluation_strategy=steps",
            "eval_steps 0 means logging_steps: {2.value}",
            label="treated as if it were left out",
            help="write an interval, or eval_strategy: no",
            effective=("(trainer:logging_steps>0)",),
        ),
    ),
)


_OTHERS: Final = (("save_steps", "save_strategy"), ("logging_steps", "logging_strategy"))


@rule(
    "warning",
    "silent",
    consumers=("transformers",),
    reads=keys("trainer", "eval_steps", "eval_delay", "save_steps", "logging_steps"),
)
def interval_without_strategy(run: LintContext) -> Iterator[Finding]:
    """An interval in steps is set, but its strategy does not count in steps.

    If the strategy is written in the same file, it decides as intended, and the unused interval is
    a note. An evaluation interval without evaluation data is a note too.
    """
    for document in run.of("trainer"):
        if document.is_view:
            continue  # Axolotl evaluates wherever eval_steps is written
        yield from _evaluation(run, document)
        yield from _delay(document)
        for steps, strategy in _OTHERS:
            place, said = document.get(steps), document.get(strategy)
            if place is None or said is None or not is_positive(place.value):
                continue
            if said.value in ("epoch", "no", "best", False):
                yield _unused_interval(place, said, f"{strategy} {_word(said)}")


_OF_SWIFT: Final = re.compile(r"\bfrom swift\b|\bimport swift\b")
"""ms-swift 2.0 to 3.9 llm/argument/train_args.py: eval_strategy defaults to save_strategy."""


_SET: Final = re.compile(r"[.(,\s]eval(?:uation)?_strategy\s*=(?!=)\s*(?![\"']no)")
"""Matches a script that sets the strategy itself, or passes one to its arguments."""


def _evaluation(run: LintContext, document: Document) -> Iterator[Finding]:
    place, said = document.get("eval_steps"), strategy_of(document)
    if place is None or not is_positive(place.value):
        return
    is_own = run.own.declares("eval_strategy") or run.own.shows(_SET)
    if document.format == "shell" and (is_own or run.own.shows(_OF_SWIFT)):
        return  # ms-swift, or the repository's own, has another default
    if never_evaluates(document) or (said is not None and said.value == "epoch"):
        what = f"{said.path} {_word(said)}" if said else "no eval_strategy"
        found = _unused_interval(place, said, what)
        is_idle = not _is_to_evaluate(document) or _has_nothing_to_evaluate(document)
        yield replace(found, severity="note") if is_idle else found


_EVALUATED: Final = (
    *("eval_dataset", "val_size", "validation_file", "validation_split_percentage", "eval_file"),
    *("eval_data_path", "validation_data", "eval_data_file", "dataset_test_split", "test_file"),
)
"""Keys that give evaluation data: LLaMA-Factory hparams/data_args.py, TRL scripts/utils.py
`ScriptArguments`, transformers' examples/pytorch, and the same names in other scripts."""


def _is_to_evaluate(document: Document) -> bool:
    """Whether evaluation is requested or has data; a Python script is judged by its calls."""
    if document.value("do_eval") is False:
        return False
    is_asked = document.value("do_eval") is True or document.format == "python"
    return is_asked or any(document.value(each) for each in _EVALUATED)


def _has_nothing_to_evaluate(document: Document) -> bool:
    """Whether none of the trainers that a script creates gets evaluation data."""
    calls = calls_of(document.name, document.text) if document.format == "python" else None
    made = [each for each in calls.found if each.name.endswith("Trainer")] if calls else []
    return bool(made) and not any("eval_dataset" in each.fields for each in made)


def _delay(document: Document) -> Iterator[Finding]:
    delay, said = document.get("eval_delay"), strategy_of(document)
    if delay is not None and is_positive(delay.value) and never_evaluates(document):
        yield Finding(
            f"eval_delay {delay.value} does nothing: there is no evaluation to delay",
            (delay.label("not used"), *also(said)),
            ("eval_strategy is no by default",),
            "write eval_strategy: steps, or remove it",
            severity="note" if said is not None else None,
        )


def _word(said: Place) -> str:
    return "no" if said.value is False else str(said.value)


def _unused_interval(place: Place, said: Place | None, what: str) -> Finding:
    name = place.path.removesuffix("_steps")
    never = said is None or said.value in ("no", False)
    act = {"eval": "evaluation", "save": "checkpoint"}.get(name, "log line")
    fix = Fix((said.replaced("steps"),), "unsafe") if said is not None else None
    beside = f"with {what}" if said is not None else f"without {name}_strategy"
    return Finding(
        f"{place.path} {place.value} does nothing {beside}",
        (place.label("not used"), *also(said, "decides")),
        (f"there is no {act} at all" if never else f"one {act} comes after each epoch",),
        f"write {name}_strategy: steps",
        fix,
        severity="note" if said is not None else None,
    )


limit_of_zero_checkpoints = rows(
    "limit-of-zero-checkpoints",
    "warning",
    "silent",
    consumers=("transformers",),
    rows=(
        Row(
            "trainer:save_total_limit=0",
            "save_total_limit {0.value} keeps every checkpoint",
            label="no limit",
            why="a checkpoint with its states is 6 to 8 times as large as the 16-bit model",
            help='write 1, or save_strategy: "no" for no checkpoint at all',
            beside=("no save_strategy=no|false",),
        ),
    ),
)


_WORDS: Final = ("true", "false", "none", "null", "auto", "last", "latest", "yes", "no")


@rule(
    "warning",
    "resume",
    consumers=("transformers",),
    reads=("trainer:resume_from_checkpoint",),
    unless="declared",
)
def resume_from_a_word(run: LintContext) -> Iterator[Finding]:
    """A boolean is given where the path of a checkpoint is expected."""
    for place in run.each("trainer", "resume_from_checkpoint"):
        if place.document.is_view or "bool" in run.own.type_of("resume_from_checkpoint"):
            continue  # the script's own class makes a truth value of it
        if place.value is None and place.document.format == "python":
            continue
        is_flag = place.document.format == "shell"
        text = str(place.value) if isinstance(place.value, bool) and is_flag else place.word
        if text is None or text.lower() not in _WORDS:
            continue
        is_off = text.lower() in ("false", "none", "null", "no")
        yield Finding(
            f"resume_from_checkpoint {text} is taken as the folder `{text}`",
            (place.label("no such folder"),),
            (
                "the field is text: trainer.train gets it, and looks for such a folder",
                "a script may handle the word itself, which is not visible here",
            ),
            "leave it out" if is_off else "write the folder of the checkpoint",
            Fix((place.removed(),), "unsafe") if is_off else None,
            severity="note" if _is_handed_on(run, place) is False else None,
        )


_HANDED_ON: Final = re.compile(
    r"resume_from_checkpoint\s*=(?!=)|\.resume_from_checkpoint|[\"']resume_from_checkpoint[\"']"
)


def _is_handed_on(run: LintContext, place: Place) -> bool | None:
    """Whether a script of the repository reads the field; None if the repository has no script.

    transformers 4.40.2 to 5.23.0 trainer.py `Trainer.train` reads only its own argument: the field
    of TrainingArguments is for scripts.
    """
    if place.document.format != "shell" or run.own.lacks("TrainingArguments"):
        return None
    return run.own.shows(_HANDED_ON) if run.own.holds("TrainingArguments") else None


@rule(
    "warning",
    "resume",
    consumers=("transformers",),
    reads=keys("trainer|axolotl", "save_only_model"),
)
def resume_of_weights_only(run: LintContext) -> Iterator[Finding]:
    """Training is to resume from checkpoints that contain only weights."""
    for kind in ("trainer", "axolotl"):
        yield from _resumed_without_states(run, kind)


_LAST: Final = "auto_resume_from_checkpoints"
"""Axolotl's switch for resuming from the last checkpoint in the run's own folder."""


def _resumed_without_states(run: LintContext, kind: str) -> Iterator[Finding]:
    only = run.said(kind, "save_only_model")
    resume = run.said(kind, "resume_from_checkpoint") or run.said(kind, _LAST)
    if only is None or resume is None or only.value is not True:
        return
    folder = run.said(kind, "output_dir")
    if not resume.value or not _is_own(folder, resume.value):
        return
    engine = engine_of(run)
    yield Finding(
        f"{resume.path} finds no optimizer state: save_only_model leaves it out",
        (resume.label("looks for all states"), only.label("saves weights only", primary=False)),
        (
            f"{engine} finds no checkpoint of its own there, and stops with an error"
            if engine
            else "the weights are loaded; optimizer, scheduler and random state start afresh, and "
            "only a line of the log says so",
        ),
        "remove save_only_model",
        severity="error" if engine == "DeepSpeed" and folder is not None else None,
        consequence="resume" if engine == "DeepSpeed" else "silent",
    )


def _is_own(folder: Place | None, value: Any) -> bool:
    """Whether a checkpoint was written by this run, with these settings.

    If a partial file gives no output folder, the run is assumed to resume from its own.
    """
    if folder is None:
        return True
    if not isinstance(folder.value, str) or not isinstance(value, str):
        return value is True
    return value.removeprefix("./").startswith(folder.value.removeprefix("./").rstrip("/") + "/")
