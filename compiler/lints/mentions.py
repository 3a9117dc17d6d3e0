"""What the rest of a repository says of the files in it: who names them, who reads them.

Of an engine's file that nothing names, and of a file of tests, no run is known. Where the
repository's scripts name another one, or speak of the engine and take no file for it, what is found
in it happens to nobody: it is a note. A command's flags are read as the trainer's whose fields they
are, and the program that it starts may parse them by itself, or do what a rule asks for.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path, PurePath, PurePosixPath
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.own_source import texts_below
from tunec.compiler.lints.repository import is_of_a_copy
from tunec.schemas.frozen import replace

_PROGRAMS: Final = (".py", ".sh", ".bash", ".slurm", ".sbatch", ".ipynb", ".bat", "Makefile")
_ENDINGS: Final = (
    *_PROGRAMS,
    *(".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".env", ".md", ".rst", ".txt", "justfile"),
)
_TAKES: Final[Mapping[str, re.Pattern[str]]] = {
    "deepspeed": re.compile(
        r"HfArgumentParser|TrlParser|H4ArgumentParser|\bdeepspeed\s*=\s*[\w.]+\.(?:deepspeed|ds)\w*"
        r"""|["']--(?:\w+_)?(?:deepspeed|ds)(?:_(?:config\w*|path|file))?["']"""
        r"""|--deepspeed\w*[ =]+["']?\$"""
        r"""|(?:\[|get\()["'](?:deepspeed|ds)(?:_(?:config\w*|path|file))?["']"""
        r"|\A(?=[\s\S]*add_config_arguments\()(?![\s\S]*\bconfig(?:_params)?\s*=\s*\w)"
    ),
    "accelerate": re.compile(r"accelerate launch|accelerate\.commands|\bAccelerator\("),
}
"""How a program takes a file for an engine that it does not name."""
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "deepspeed": ("deepspeed",),
    "accelerate": ("accelerate", "torchrun", "deepspeed "),
}
_FORMATS: Final = ("json", "yaml")
_GOES_ON: Final = frozenset({"silent", "slow", "save", "out-of-memory", "unclear"})
"""What happens to a run that is not refused."""
_BUILT: Final = r"[{$%*]"
"""What follows the beginning of a name that a program puts together."""
_LEAST_BEGUN: Final = 4

UNNAMED: Final = "nothing in this repository names the file: no run of it is known"
OF_A_COPY: Final = "the file is an example of a library that this repository has a copy of"
OF_TESTS: Final = "the file is one of tests: it is there for them, and no run of it is known"


class Mentions(Struct, frozen=True, dict=True):
    """The texts of a repository by path; they are read when somebody asks."""

    roots: tuple[Path, ...] = ()

    def names(self, file: str) -> bool:
        """Whether another file has the name of a file, with or without its ending, or builds it."""
        if file not in self._named:
            self._named[file] = any(self._naming(file))
        return self._named[file]

    def _naming(self, file: str) -> Iterator[bool]:
        own, name = Path(file).resolve().as_posix(), PurePosixPath(file)
        begun = "|".join(re.escape(name.name[:n]) for n in range(_LEAST_BEGUN, len(name.name)))
        built = rf"|(?:{begun}){_BUILT}" if begun else ""
        stem = rf"""["'/]{re.escape(name.stem)}["']"""
        pattern = re.compile(rf"(?<![\w-]){re.escape(name.name)}(?!\w)|{stem}{built}")
        yield from (pattern.search(text) is not None for path, text in self._texts if path != own)

    def leaves_to_nobody(self, kind: str) -> bool:
        """Whether programs speak of an engine, or of others instead, and none takes its file."""
        programs = (text for path, text in self._texts if path.endswith(_PROGRAMS))
        mine = [text for text in programs if any(word in text for word in _WORDS[kind])]
        return bool(mine) and not any(_TAKES[kind].search(text) for text in mine)

    @cached_property
    def _named(self) -> dict[str, bool]:
        return {}

    @cached_property
    def _texts(self) -> tuple[tuple[str, str], ...]:
        every = (each for root in self.roots for each in texts_below(root, _ENDINGS))
        return tuple((path, _without_remarks(path, text)) for path, text in every)


_REMARK: Final = re.compile(r"""(?m)^[ \t]*"?#(?!!).*$""")
_HAVE_REMARKS: Final = (*_PROGRAMS, ".yaml", ".yml")


def _without_remarks(path: str, text: str) -> str:
    """A text without the lines that are remarks: what is named in them alone is not used."""
    return _REMARK.sub("", text) if path.endswith(_HAVE_REMARKS) else text


def unless_unnamed(
    found: Iterable[Diagnostic], runs: Sequence[LintContext], files: Set[str], mentions: Mentions
) -> Iterator[Diagnostic]:
    """What is found, with a note of what stands in a file of which no run is known.

    A refusal meets whoever takes the file, so that it is reported where somebody may. `files`:
    those that were found below a folder, and not named by whoever asks.
    """
    every = tuple(found)
    told = {each for one in every if one.severity != "note" for each in _files(one)}
    if told.isdisjoint(files):
        yield from every
        return
    dead, idle, unsure = _of_tests(files, told), set[str](), set[str]()
    dead |= {each: OF_A_COPY for each in told & files if is_of_a_copy(Path(each), mentions.roots)}
    for kind, mine in _engine_files(runs, files).items():
        unnamed = {each for each in mine & told if not mentions.names(each)}
        if unnamed and mentions.leaves_to_nobody(kind):
            dead |= dict.fromkeys(unnamed, UNNAMED)
        elif len(unnamed) > 1 or any(map(mentions.names, mine - unnamed)):
            idle |= unnamed  # one of several choices, of which another may be taken
            unsure |= unnamed if kind == "deepspeed" else set()
    for each in every:
        yield _noted(each, dead, idle, unsure)


def _noted(
    found: Diagnostic, dead: Mapping[str, str], idle: Set[str], unsure: Set[str]
) -> Diagnostic:
    """`unsure`: files in which a refusal is a warning, since nobody may ever meet it."""
    if found.severity == "note":
        return found
    why = next((dead[each] for each in _files(found) if each in dead), None)
    if why is None and not idle.isdisjoint(_files(found)) and found.consequence in _GOES_ON:
        why = UNNAMED
    if why is not None:
        return replace(found, severity="note", notes=(*found.notes, why), fix=None)
    is_unsure = found.severity == "error" and not unsure.isdisjoint(_files(found))
    if not is_unsure:
        return found
    return replace(found, severity="warning", notes=(*found.notes, UNNAMED))


def _files(found: Diagnostic) -> tuple[str, ...]:
    return tuple(each.span.file for each in found.labels if each.span is not None)


def _of_tests(files: Set[str], told: Set[str]) -> dict[str, str]:
    """Files of tests among others: where all are of tests, they are what is asked about."""
    from tunec.compiler.lints.python_files import is_of_tests

    tested = {each for each in files if is_of_tests(each)}
    return {} if tested == files else dict.fromkeys(tested & told, OF_TESTS)


def _engine_files(runs: Iterable[LintContext], files: Set[str]) -> dict[str, Set[str]]:
    """The files for each engine among those that were found."""
    every = [each for run in runs for each in run.of(*_TAKES)]
    mine = [e for e in every if e.format in _FORMATS and not e.is_view and e.name in files]
    return {kind: {each.name for each in mine if each.kind == kind} for kind in _TAKES}


# ── programs beside their commands ────────────────────────────────────────────────────────────────

_PARSES: Final = re.compile(
    r"\bargparse\.ArgumentParser\(|\bArgumentParser\(|\b(?:fire\.Fire|tyro)\b"
)
_OF_TRAINER: Final = re.compile(
    r"HfArgumentParser|TrlParser|TrainingArguments|\w+(?:SFT|DPO|GRPO|KTO|Reward)Config\b|lightning"
)
"""What a program has that gives its flags, or what it makes of them, to the Trainer."""
_OF_CLASSES: Final = ("hf", *TRL)


def unless_parsed(run: LintContext) -> LintContext:
    """The run without flags that a program of the repository parses by itself."""
    parsed = {name for name in run.started if _parses(run, name)}
    kept = tuple(each for each in run.documents if not (parsed and _is_of(each, parsed)))
    return run if len(kept) == len(run.documents) else replace(run, documents=kept)


def _parses(run: LintContext, name: str) -> bool:
    texts = list(_sources(run, name))
    return bool(texts) and all(text is not None and _parses_alone(text) for text in texts)


_ALONE: Final = re.compile(r"(?m)^class (\w+)\s*(?:\(\s*(?:object)?\s*\))?:")
"""A class of nobody's: what it is called says nothing."""
_INTO_CLASSES: Final = re.compile(r"\bH(?:f|4)ArgumentParser\b")


def _parses_alone(text: str) -> bool:
    """Whether a program parses its flags, and no class of a trainer gets them."""
    own = frozenset(_ALONE.findall(text))
    rest = re.sub(rf"\b(?:{'|'.join(sorted(own))})\b", "", text) if own else text
    parses = _PARSES.search(text)
    if "TrainingArguments" in own:  # the repository's own, whoever fills it
        parses, rest = parses or _INTO_CLASSES.search(text), _INTO_CLASSES.sub("", rest)
    return parses is not None and not _OF_TRAINER.search(rest)


def _sources(run: LintContext, name: str) -> Iterator[str | None]:
    """The source of each program that a file starts; None where it is not of the repository."""
    for program in run.started.get(name, {}):
        yield run.own.text_of(program)


def _is_of(document: Document, names: set[str]) -> bool:
    first = document.origin or document
    return first.name in names and first.format == "shell" and first.kind in _OF_CLASSES


_SETTLED: Final[Mapping[str, re.Pattern[str]]] = {
    "several-devices-in-one-process": re.compile(
        r"device_map|\.model_parallel\s*=\s*True|\bPPO(?:v2)?Trainer\("
    ),
    "reward-head-not-trained": re.compile(r"\bSEQ_CLS\b"),
    "reentrant-over-frozen-base": re.compile(
        r"projector|requires_grad\s*=\s*True|requires_grad_\(True|enable_input_require_grads"
    ),
    "generation-length-missing": re.compile(r"max_new_tokens|generation_max_length|\bmax_length="),
    "bf16-updates-lost": re.compile(r"\A(?![\s\S]*dtype)"),
    "fp16-trainable-weights": re.compile(
        r"\A(?![\s\S]*(?:cast_training_params|args\.mixed_precision\s*==\s*[\"']fp16))"
    ),
    "longer-than-context": re.compile(r"rope_scaling|rope_parameters|max_position_embeddings\s*="),
    "fsdp-model-left-in-shards": re.compile(r"set_state_dict_type\(|FULL_STATE_DICT"),
    "adapter-saved-empty": re.compile(r"maybe_zero_3|GatheredParameters\("),
}
"""What a program's source shows where a rule's finding in its flags is not so: it places the model
on several devices, builds the adapter for a head, trains what makes the input of the first layer,
says how long it generates, loads in no dtype that is given, makes its adapters in fp32, stretches
the model's positions, asks FSDP for a whole model before it saves, or gathers the shards itself."""
_FURTHER: Final = frozenset(
    {
        *("reentrant-over-frozen-base", "longer-than-context", "fsdp-model-left-in-shards"),
        "adapter-saved-empty",
    }
)
"""Rules whose pattern may stand in what the program imports, too."""
_OF_TRAINERS_LOOP: Final = frozenset({"deepspeed-and-trainer-differ", "limit-of-zero-checkpoints"})
"""Rules about what transformers' Trainer does when it is made, or saves."""
_SET_LATE: Final = re.compile(r"\b\w*train\w*_args\.deepspeed\s*=(?!=)")
_MADE: Final = re.compile(r"(?<!class )\b(\w*Trainer)\(")


def unless_settled(found: Iterable[Diagnostic], run: LintContext) -> Iterator[Diagnostic]:
    """What is found, without what the started program's own source settles otherwise."""
    every = tuple(found)
    unread = {name for each in every for name in _unread_by(each, run)}
    is_off = any(each.id == "config-of-another-engine" for each in every)
    for each in every:
        is_lost = each.id == "missing-file" and _FILE in [label.path for label in each.labels]
        if each.file in unread or (unread and each.id in _OF_ENGINE) or (is_off and is_lost):
            yield replace(each, severity="note")
            continue
        if _is_asked_first(run, each) or _is_of_own_loop(run, each):
            continue
        pattern = _SETTLED.get(each.id)
        text = None if pattern is None else _settling(run, each)
        is_unseen = each.id == "reentrant-over-frozen-base" and any(
            map(run.own.lacks_program, _at(run, each))
        )
        if is_unseen:  # what is not there may call enable_input_require_grads()
            yield replace(each, severity="note")
        elif pattern is None or text is None or not pattern.search(text):
            is_note = _is_meant(each) or _is_of_another(run, each)
            yield replace(each, severity="note") if is_note else each


def _settling(run: LintContext, found: Diagnostic) -> str | None:
    """The text in which a pattern is looked for."""
    if found.id not in _FURTHER:
        return _source_at(run, found)
    return "\n".join(_texts_of(run, found)) or None


def _texts_of(run: LintContext, found: Diagnostic) -> list[str]:
    """The programs that a finding is about, with what they import: of a file, all of its run."""
    programs = _at(run, found) or [name for each in run.started.values() for name in each]
    return [text for name in programs for text in run.own.sources_of(name)]


def _is_of_own_loop(run: LintContext, found: Diagnostic) -> bool:
    """Whether it is about the Trainer, and the program's trainer is a class of its own.

    Nor does the Trainer compare a file for DeepSpeed that its arguments get after they are made.
    """
    if found.id not in _OF_TRAINERS_LOOP or found.severity == "note":
        return False
    if found.id == "deepspeed-and-trainer-differ" and run.own.shows(_SET_LATE):
        return True
    text = "\n".join(_texts_of(run, found)) or run.own.every_text
    made = frozenset(_MADE.findall(text))
    return bool(made) and made <= _own_classes(text) and _TAKEN.search(text) is None


_BELOW: Final = re.compile(r"(?m)^class (\w+)\(\s*(\w+)\s*\):")
_TAKEN: Final = re.compile(
    r"(?s)from (?:transformers|trl)[\w.]* import (?:\([^)]*|[^\n(]*)\b\w*Trainer\b"
)


def _own_classes(text: str) -> frozenset[str]:
    """Classes that come from no other package, nor do those that they are made of."""
    own, below = set(_ALONE.findall(text)), _BELOW.findall(text)
    while new := {name for name, base in below if base in own} - own:
        own |= new
    return frozenset(own)


_FILE: Final = "deepspeed_config.deepspeed_config_file"
_OF_ENGINE: Final = frozenset({"accumulation-left-out", "cpu-optimizer-on-one-thread"})
"""Rules about a command whose findings follow from the engine that it starts."""


def _unread_by(found: Diagnostic, run: LintContext) -> Iterator[str]:
    """The engine's files that a command names without the switch that starts the engine."""
    flags = (each.path for each in found.labels)
    if found.id == "engine-flags-unread" and "flags.deepspeed_config_file" in flags:
        yield from (each.name for each in run.of("deepspeed"))
    if found.id == "config-of-another-engine" and any(run.each("accelerate", _FILE)):
        yield from (each.name for each in run.of("deepspeed"))


_BY_RELEASE: Final = frozenset(
    {"argument-of-no-release", "field-of-another-release", "key-of-another-release"}
)
_ASKS: Final = re.compile(r"\bsignature\(|except\s*\(?[^:\n]*\bTypeError\b")
_OF_ADAPTERS: Final = frozenset(
    {"lora-alpha-of-zero", "lora-rank-not-positive", "lora-pair-refused"}
)
_ADAPTS: Final = re.compile(r"get_peft_model|add_adapter|inject_adapter|[(,]\s*peft_config\s*=")


_PASSES_OVER: Final = re.compile(r"return_remaining_strings\s*=\s*True|parse_known_args\(")
"""How a program parses that takes flags which nobody knows."""
_OF_FLAGS: Final = _BY_RELEASE | {"key-of-no-class", "required-field-missing"}
_OF_LLAMAFACTORY: Final = frozenset({"template-of-another-release", "key-of-no-release"})
"""Rules about words that only LLaMA-Factory's own code, or an import of it, gives a meaning."""
_LLAMAFACTORY: Final = re.compile(r"llamafactory|llmtuner")
_OF_LOOP: Final = frozenset({"several-devices-in-one-process", "required-field-missing"})
"""Rules about commands that hold where the Trainer is what they start."""


def _is_of_another(run: LintContext, found: Diagnostic) -> bool:
    """Whether the started program takes flags that it does not know, or trains by nothing known."""
    if found.id not in _OF_FLAGS | _OF_LOOP | _OF_LLAMAFACTORY or found.severity == "note":
        return False
    text = _source_at(run, found)
    if found.id in _OF_LLAMAFACTORY:
        return text is not None and not _LLAMAFACTORY.search("\n".join(_texts_of(run, found)))
    if found.id in _OF_LOOP:
        is_verls = any(name.startswith("verl") for name in _at(run, found))
        return is_verls or (text is not None and not _OF_TRAINER.search(text))
    return text is not None and _PASSES_OVER.search(text) is not None


def _is_asked_first(run: LintContext, found: Diagnostic) -> bool:
    """Whether a script asks what it runs with, or makes a config to train nothing with."""
    if not found.file.endswith(".py"):
        return False
    text = next((each.text for each in run.documents if each.name == found.file), "")
    if found.id in _BY_RELEASE:
        return _ASKS.search(text) is not None
    if found.id == "bf16-updates-lost":
        return "deepspeed_plugin" in text  # DeepSpeed keeps fp32 copies
    return found.id in _OF_ADAPTERS and _ADAPTS.search(text) is None


def _is_meant(found: Diagnostic) -> bool:
    """Whether the file's own name says that what is found is meant."""
    name = _MEANT.get(found.id)
    return name is not None and name.search(PurePath(found.file).stem) is not None


_MEANT: Final[Mapping[str, re.Pattern[str]]] = {
    "processes-without-engine": re.compile(r"(?i)single|(?:one|1)[_-]?(?:gpu|device)"),
}


def _source_at(run: LintContext, found: Diagnostic) -> str | None:
    """The source of the program in whose command a finding stands."""
    return next((run.own.text_of(name) for name in _at(run, found)), None)


def _at(run: LintContext, found: Diagnostic) -> list[str]:
    """The program in whose command a finding stands, if it is known."""
    line = 0 if found.span is None else found.span.line
    started = run.started.get(found.file, {})
    before = [(at.span.line, name) for name, at in started.items() if at.span.line <= line]
    return [max(before)[1]] if before else list(started)[:1]
