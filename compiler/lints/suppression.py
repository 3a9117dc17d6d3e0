"""Findings that are passed over: by names that a spec allows.

And those that rest on a guess, as how files go together: they are notes, whatever the rule says.
So are those in a file that the repository's own scripts read otherwise.

In a repository, a finding keeps the level of its rule where it has a witness: something starts the
program that reads the file, nothing of the repository's own comes in between, and the statement is
reached. Each reason against it is one row: the sentence that the user reads, and the level that is
left.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRAINERS, TRL, Document
from tunec.compiler.lints.index import Record, record
from tunec.schemas.frozen import replace


class Reason(Struct, frozen=True):
    """What is against a finding, and the level that an error and a warning then have."""

    text: str
    error: Severity = "note"
    warning: Severity = "note"


_ONE_LOWER: Final[tuple[Severity, Severity]] = ("warning", "warning")
"""What is left of an error and of a warning where a premise is only taken to be so."""

# ── what starts it ────────────────────────────────────────────────────────────────────────────────
PRINTED: Final = Reason("the programs that name the file only print it, or leave it unused")
UNNAMED: Final = Reason("nothing in this repository names the file: no run of it is known")
NO_READER: Final = Reason("nothing in this repository names the program whose file it is taken for")
IN_TEXT: Final = Reason(
    "no command or program of this repository names the file, only a text", *_ONE_LOWER
)
UNSTARTED: Final = Reason("nothing in this repository names this program", *_ONE_LOWER)
OF_A_COPY: Final = Reason("the file belongs to a library that this repository has a copy of")
ASIDE: Final = Reason("by the name of its folder the file is set aside: no run of it is known")
OF_TESTS: Final = Reason("the file is one of tests: it is there for them, and no run is known")
TOGETHER: Final = Reason("no file says that these are one run: name them together if they are")

# ── what reads it ─────────────────────────────────────────────────────────────────────────────────
READ_BY_ITSELF: Final = Reason(
    "a script of this repository loads the file, and takes its keys itself"
)
TEMPLATE: Final = Reason(
    "the file leaves its values or its run's name open, as a template: what fills it is not known"
)
FILLED_IN: Final = Reason("a word stands for a value, as in a template: what fills it is not known")
IN_HJSON: Final = Reason(
    "deepspeed.initialize reads the file by hjson: quotes and a line's last comma may be left out"
)
RECORDS: Final = Reason("one document follows another, as in a list that a program writes")
OWN_VERL: Final = Reason("this repository has a verl of its own, which may read it otherwise")
OF_HYDRA: Final = Reason("a program of this repository names the file as its own configuration")
IN_YAML: Final = Reason("DeepSpeed reads JSON, and a program of this repository loads YAML itself")
OF_ANOTHER: Final = Reason("its keys are those of no known program: another one may read it")
WRITTEN: Final = Reason(
    "a script of this repository writes the file before it starts what reads it"
)
OWN_WORD: Final = Reason("a script of this repository registers the word")
OWN_COPY: Final = Reason(
    "this repository has a copy of the program, which may differ from every release"
)
OWN_FLAG: Final = Reason(
    "the program that is started has the flag for itself, and may read it otherwise"
)
OWN_PROGRAM: Final = Reason(
    "the program that is started is one of this repository, which may read it otherwise"
)
OWN_FIELD: Final = Reason("a class of this repository has the field, and may take other values")
OWN_TEMPLATE: Final = Reason("a script of this repository registers a template of that name")
OWN_TRAINER: Final = Reason("the trainer is a class of this repository, which may do it otherwise")
PATCHED: Final = Reason(
    "a program that imports this file imports Unsloth, which replaces TRL's classes with its own"
)
AS_TEXT: Final = Reason("a script of this repository gives each value to its parser as text")

READER_TAKEN: Final = Reason(
    "the program that reads it is the repository's own, and not known to pass it on as it is",
    *_ONE_LOWER,
)
READER_UNSEEN: Final = Reason(
    "this would end a run, and nothing in this repository shows that it starts the program which"
    " refuses it: another program, or another release, may read it",
)
RELEASE_UNSEEN: Final = Reason(
    "no file of this repository says which release reads it: another may take it", *_ONE_LOWER
)
KEPT_OUT: Final = Reason("the repository's .gitignore keeps the file out of it: others may have it")
SOME_VERL: Final = Reason(
    "no file of this repository says which release of verl reads it, and keys and words change"
)
OLDER_VERL: Final = Reason("keys and words of verl are known of later releases than this one")
ELSEWHERE: Final = Reason(
    "the script changes to a folder of another name first: which files it finds is not known"
)
PROGRAM_GONE: Final = Reason(
    "the folder of the program that it starts is here, and the program is not: nothing starts"
)
PROGRAM_UNSEEN: Final = Reason(
    "the program that it starts is not in this repository: what it does is not known", *_ONE_LOWER
)
TRAINER_UNSEEN: Final = Reason(
    "the program's trainer comes from a module that is not in this repository", *_ONE_LOWER
)

UNSUBMITTED: Final = Reason("the script is started by its path here, and nothing submits it")
HOSTS_ELSEWHERE: Final = Reason(
    "deepspeed takes /job/hostfile where no other is given, and a machine may have one"
)
IDLE: Final = Reason("the block that it is in is switched off")
STARTED_OTHERWISE: Final = Reason(
    "another script starts the file too, and not with one process alone"
)

# ── whether it is reached as it is written ────────────────────────────────────────────────────────
CUT: Final = Reason("the script's Windows line endings cut its commands off before their flags")
SET_LATER: Final = Reason("a script of this repository sets it itself after it has read it")
SET_BESIDE: Final = Reason("each command that names the file gives this as a flag beside it")
OTHER_ENGINE: Final = Reason(
    "each command that names the file gives --multi_gpu, beside which its engine is not started"
)
BY_NAME: Final = Reason(
    "the script gives it by a name, which its command or its caller may fill otherwise"
)
UNREACHED: Final = Reason("it stands under a condition that no command here is known to meet")


def lowered(found: Diagnostic, why: Reason) -> Diagnostic:
    """A finding at the level that a reason leaves, with its sentence; a note stays as it is."""
    if found.severity == "note":
        return found
    left = why.error if found.severity == "error" else why.warning
    if left == found.severity:
        return found
    fix = found.fix if left != "note" else None
    return replace(found, severity=left, notes=(*found.notes, why.text), fix=fix)


def weakest(found: Diagnostic, reasons: Iterable[Reason]) -> Diagnostic:
    """A finding at the level that the reasons against it leave together."""
    every = tuple(dict.fromkeys(reasons))
    if not every:
        return found
    return lowered(found, every[0] if len(every) == 1 else Reason("; ".join(e.text for e in every)))


# ── what the rule itself was worth ────────────────────────────────────────────────────────────────
class Bar(Struct, frozen=True):
    """How good a rule's record has to be for what it finds in a repository, and what is left else.

    A condition that is None is not asked.
    """

    share: float
    least: int
    """The fewest causes for which the rule must have been judged."""
    leaves: Severity
    errors: bool | None = None
    in_python: bool | None = None

    def is_for(self, said: "Said") -> bool:
        """Whether it is asked of a finding."""
        asked, told = (self.errors, self.in_python), (said.is_error, said.in_python)
        return all(each in (None, so) for each, so in zip(asked, told, strict=True))

    def is_met(self, mine: Record) -> bool:
        """Whether a record is good enough."""
        return mine.judged >= self.least and mine.share >= self.share


class Said(Struct, frozen=True):
    """What a finding says, as far as its rule's record has to be the better for it."""

    is_error: bool
    in_python: bool
    """A Python program says it, whose calls name what reads them."""


BARS: Final = (
    Bar(0.7, 3, "note", in_python=False),
    Bar(0.5, 3, "note", in_python=True),
    Bar(0.85, 8, "warning", errors=True),
)
"""The first that is not met decides: chosen by rounds 28 to 32, and proved by those after, of which
they leave errors of which 91 % are so, and warnings of which 86 % are (docs/false-alarms.md)."""


def missed(mine: Record, said: Said) -> Bar | None:
    """The first bar that a record does not meet for what a finding says."""
    return next((each for each in BARS if each.is_for(said) and not each.is_met(mine)), None)


def unproven(name: str, said: Said) -> Reason | None:
    """What the record of a rule is against one of its findings in a repository."""
    mine = record(name)
    bar = missed(mine, said)
    if bar is None:
        return None
    text = f"{_WORTH} {mine.true} of {mine.judged} faults" if mine.judged else UNJUDGED
    return Reason(text, bar.leaves, bar.leaves)


def is_unproven(found: Diagnostic) -> bool:
    """Whether a finding was lowered by what its rule was worth."""
    return any(each == UNJUDGED or each.startswith(_WORTH) for each in found.notes)


_WORTH: Final = "in public repositories, this rule was right about"
UNJUDGED: Final = "in public repositories, this rule has not been judged yet"


def unless_guessed(
    found: Iterable[Diagnostic], alone: Iterable[Sequence[Diagnostic]]
) -> tuple[Diagnostic, ...]:
    """The findings; those that no file shows by itself become notes.

    The files were combined because they are near each other, and no script starts one with the
    other: what follows from two of them is only possible.
    """
    shown = {_place(each) for every in alone for each in every}
    return tuple(each if _place(each) in shown else lowered(each, TOGETHER) for each in found)


_KINDS: Final = (
    *TRAINERS,
    *("axolotl", "llamafactory", "unsloth", "ms-swift", "accelerate", "glm4"),
)
_FORMATS: Final = ("yaml", "json", "toml")


def unless_own(found: Iterable[Diagnostic], run: LintContext) -> Iterator[Diagnostic]:
    """The findings; those in a file that the repository's own scripts read become notes.

    Such a file has the keys of a known program, but another reader.
    """
    of_trainers = [each for each in run.documents if each.kind in _KINDS]
    by_name = {each.name: each for each in reversed(of_trainers)}
    own = {each.name: READ_BY_ITSELF for each in of_trainers if _is_own(each, run)}
    own |= {each.name: TEMPLATE for each in of_trainers if _is_template(each)}
    of_verl = run.of("verl")
    own |= {each.name: OF_HYDRA for each in of_verl if _is_hydras(each, run)}
    if of_verl and run.own.shows(_OF_VERL):
        own |= {each.name: OWN_VERL for each in of_verl}
    own |= {each.name: IN_YAML for each in run.of("deepspeed") if _is_no_engines(each, run)}
    for each in found:
        if each.file in own:
            yield lowered(each, own[each.file])
        else:
            document = by_name.get(each.file)
            why = SET_LATER if _is_set(each, document, run) else None
            why = why or (OWN_TRAINER if _is_own_field(each, document, run) else None)
            why = why or (PATCHED if _is_replaced(each, run) else None)
            yield each if why is None else lowered(each, why)


_OF_VERL: Final = re.compile(r"(?m)^class (?:RayPPOTrainer|ActorRolloutRefWorker)\b")


_LOADS_YAML: Final = re.compile(r"yaml\.(?:safe_|full_)?load\(|OmegaConf\.load\(")


def _is_no_engines(document: Document, run: LintContext) -> bool:
    """Whether programs here load YAML, and none of them gives what it holds to DeepSpeed."""
    is_alone = {each.kind for each in run.documents if each.name == document.name} == {"deepspeed"}
    is_loaded = run.own.shows(_LOADS_YAML) and not run.own.holds("deepspeed.initialize")
    return document.format == "yaml" and is_alone and is_loaded


def _is_hydras(document: Document, run: LintContext) -> bool:
    """Whether a program names a file as the configuration that Hydra composes for it."""
    name = re.escape(PurePosixPath(document.name).stem)
    pattern = rf"""hydra\.main\([^)]*config_name\s*=\s*["']{name}["']"""
    return document.format == "yaml" and run.own.shows(re.compile(pattern))


_EMPTY: Final = 0.4
_LEAST_KEYS: Final = 20


_STANDS_IN: Final = re.compile(r"(?i)dummy|placeholder|change[_-]?me|to[_-]?do|tbd|x{3,}")
_NAMES_OF_RUNS: Final = ("output_dir", "run_name")


def _is_template(document: Document) -> bool:
    """Whether something fills in the values: many keys have none, or a word stands for the run's.

    Axolotl's own examples leave up to 0.35 of them empty.
    """
    if document.format not in _FORMATS or document.is_view:
        return False
    values = [at.value for key, at in document.found.items() if "." not in key]
    names = (document.value(each) for each in _NAMES_OF_RUNS)
    is_to_name = any(isinstance(each, str) and _STANDS_IN.fullmatch(each) for each in names)
    is_empty = len(values) >= _LEAST_KEYS and values.count(None) >= _EMPTY * len(values)
    return is_to_name or is_empty


def _is_set(found: Diagnostic, document: Document | None, run: LintContext) -> bool:
    """Whether a script sets a key that a finding rests on after the document was read."""
    if document is None or _is_axolotls_own(document, run) or found.severity == "note":
        return False
    is_command = document.format == "shell"
    mine = (e for e in found.labels if e.span is not None and e.span.file == document.name)
    keys = (each.path.removeprefix("--") for each in mine if is_command or each is found.primary)
    return any(map(run.own.sets, keys))


_OF_ARGUMENTS: Final = (
    "argument-of-no-release",
    "field-of-another-release",
    "trainer-argument-moved",
)
"""Rules about the arguments of classes, which another package may replace."""
_IMPORTS_UNSLOTH: Final = re.compile(r"(?m)^\s*(?:from|import) unsloth\b")


def _is_replaced(found: Diagnostic, run: LintContext) -> bool:
    """Whether it is about a class of TRL that Unsloth replaces before the file is imported."""
    if found.id not in _OF_ARGUMENTS or not found.file.endswith(".py"):
        return False
    is_program = any("__main__" in e.text for e in run.documents if e.name == found.file)
    return not is_program and run.own.is_imported_by(found.file, _IMPORTS_UNSLOTH)


_OF_FIELDS: Final = ("trl-", "generation", "temperature-", "dpo-", "grpo-", "kto-")
"""Name prefixes of the rules about what TRL's trainers do with their fields."""
_OVERRIDES: Final = re.compile(
    r"(?ms)^class \w+Trainer\b.*?^    def (?:_?compute_loss|dpo_loss|kto_loss|_generate\w*"
    r"|get_batch_loss_metrics|_prepare_inputs)\("
)
"""A trainer of the repository's own that replaces what these rules are about."""
_OF_SCHEDULES: Final = "schedule-"
_SCHEDULES: Final = re.compile(
    r"(?ms)^class \w+Trainer\b.*?^    def (?:create_scheduler|create_optimizer_and_scheduler)\("
)
"""One that makes the schedule itself: transformers 4.40.2 to 5.23.0 trainer.py."""


def _is_own_field(found: Diagnostic, document: Document | None, run: LintContext) -> bool:
    """Whether a class made of TrainingArguments has the field, or a trainer replaces TRL's."""
    label = found.primary
    if found.id.startswith(_OF_SCHEDULES) and found.severity != "note":
        return run.own.shows(_SCHEDULES)
    if label is None or document is None or document.kind not in TRL:
        return False
    is_about_it = found.id.startswith(_OF_FIELDS) and found.severity != "note"
    is_heirs = is_about_it and run.own.declares(label.path) and run.own.shows(_HEIR)
    return is_heirs or (is_about_it and run.own.shows(_OVERRIDES))


_HEIR: Final = re.compile(r"(?m)^class \w+Config\(\s*(?:transformers\.)?TrainingArguments\s*\)")
_AXOLOTL_ITSELF: Final = re.compile(r"(?m)^class AxolotlInputConfig\b")
"""Axolotl's repository, or a copy of it: its scripts are the reader that is known."""


def _is_axolotls_own(document: Document, run: LintContext) -> bool:
    return document.kind == "axolotl" and run.own.shows(_AXOLOTL_ITSELF)


def _is_own(document: Document, run: LintContext) -> bool:
    if document.is_view or document.format not in _FORMATS or document.kind not in _KINDS:
        return False
    if _is_axolotls_own(document, run):
        return False
    if document.kind == "glm4" and run.own.holds("class FinetuningConfig"):
        return False  # the scripts that are known
    keys = [key for key in document.found if "." not in key]
    if run.own.reads_itself(keys) or run.own.declares_in_one(keys):
        return True
    return document.kind in _OF_CALLS and run.own.makes_no(_MADE)


_OF_CALLS: Final = ("hf", *TRL, "unsloth")
_MADE: Final = re.compile(
    r"TrainingArguments|HfArgumentParser|TrlParser|FastLanguageModel|FastModel|"
    r"\b(?:SFT|DPO|KTO|ORPO|CPO|PPO|GRPO|RLOO|Reward|GKD)(?:Config|Trainer)\b"
)
"""What a repository makes that trains by the keys of these kinds."""


def _place(found: Diagnostic) -> tuple[object, ...]:
    label = found.primary
    return found.id, None if label is None else label.span
