"""On what a finding rests: the program that reads a file, what it shows, and what is only taken.

A command's flags are read as the trainer's whose fields they are, and the program that it starts
may parse them by itself, or do what a rule asks for. Where it is only taken that things are as a
rule has it, its finding is a level lower (`as_known`): the repository has the flag or the reader
for itself, or a script gives a value by a name that its command may fill otherwise.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.suppression import (
    AS_TEXT,
    BY_NAME,
    OWN_COPY,
    OWN_FIELD,
    OWN_FLAG,
    OWN_PROGRAM,
    OWN_TEMPLATE,
    OWN_WORD,
    Reason,
    lowered,
)
from tunec.schemas.frozen import replace
from tunec.schemas.source import lines_of

_PARSES: Final = re.compile(
    r"\bargparse\.ArgumentParser\(|\bArgumentParser\(|\b(?:fire\.Fire|tyro)\b"
)
OF_TRAINER: Final = re.compile(
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
"""A class without a name of its own, which says nothing."""
_INTO_CLASSES: Final = re.compile(r"\bH(?:f|4)ArgumentParser\b")


def _parses_alone(text: str) -> bool:
    """Whether a program parses its flags itself, and passes them to no class of a trainer."""
    own = frozenset(_ALONE.findall(text))
    rest = re.sub(rf"\b(?:{'|'.join(sorted(own))})\b", "", text) if own else text
    parses = _PARSES.search(text)
    if "TrainingArguments" in own:  # the repository's own, whoever fills it
        parses, rest = parses or _INTO_CLASSES.search(text), _INTO_CLASSES.sub("", rest)
    return parses is not None and not OF_TRAINER.search(rest)


def _sources(run: LintContext, name: str) -> Iterator[str | None]:
    """The source of each program that a file starts; None if it is not in the repository."""
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
        r"|class \w+\((?:SFT|DPO|KTO|ORPO|CPO|GRPO|Reward)Trainer\)"
    ),
    "quantised-base-under-zero-3": re.compile(r"\bbnb_4bit_quant_storage\b"),
    "generation-length-missing": re.compile(r"max_new_tokens|generation_max_length|\bmax_length="),
    "bf16-updates-lost": re.compile(r"\A(?![\s\S]*dtype)"),
    "fp16-trainable-weights": re.compile(
        r"\A(?![\s\S]*(?:cast_training_params|args\.mixed_precision\s*==\s*[\"']fp16))"
    ),
    "generation-under-zero-3": re.compile(r"\A(?![\s\S]*Seq2Seq)"),
    "resume-from-a-word": re.compile(r"\A(?![\s\S]*(?:\w\.|\()resume_from_checkpoint\b(?!\s*=))"),
    "longer-than-context": re.compile(r"rope_scaling|rope_parameters|max_position_embeddings\s*="),
    "fsdp-model-left-in-shards": re.compile(r"set_state_dict_type\(|FULL_STATE_DICT"),
    "adapter-saved-empty": re.compile(
        r"maybe_zero_3|GatheredParameters\(|\bdef \w*save_\w*(?:peft|adapter|lora)"
    ),
    "weights-not-gathered-on-save": re.compile(r"GatheredParameters\("),
    "lora-target-string-is-a-regex": re.compile(r"\bLoraConfig\("),
    "nodes-without-srun": re.compile(r"[\"']srun\b"),
}
"""What a program's source shows where a rule's finding in its flags is not so: it places the model
on several devices, builds the adapter for a head, trains what makes the input of the first layer or
extends a trainer of TRL that does so, holds 4 bits in the dtype of the run, says how long it
generates, has no trainer that generates, resumes by no flag, loads in no dtype that is given, makes
its adapters in fp32, stretches the model's positions, asks FSDP for a whole model before it saves,
gathers the shards itself, makes the adapter of other words, or calls srun."""
_FURTHER: Final = frozenset(
    {
        *("reentrant-over-frozen-base", "longer-than-context", "fsdp-model-left-in-shards"),
        *("adapter-saved-empty", "weights-not-gathered-on-save", "quantised-base-under-zero-3"),
        *("generation-under-zero-3", "nodes-without-srun"),
    }
)
"""Rules whose pattern may also be in what the program imports."""
_OF_SAVING: Final = frozenset(
    {"adapter-saved-empty", "fsdp-model-left-in-shards", "weights-not-gathered-on-save"}
)
"""Those of which any program may be the one that saves, where none is known to be started."""
_OF_TRAINERS_LOOP: Final = frozenset({"deepspeed-and-trainer-differ", "limit-of-zero-checkpoints"})
"""Rules about what transformers' Trainer does when it is created, or when it saves."""
_SET_LATE: Final = re.compile(r"\b\w*train\w*_args\.deepspeed\s*=(?!=)")
_MADE: Final = re.compile(r"(?<!class )\b(\w*Trainer)\(")


def unless_settled(found: Iterable[Diagnostic], run: LintContext) -> Iterator[Diagnostic]:
    """The findings, without those that the started program's own source rules out."""
    every = tuple(found)
    unread = {name for each in every for name in _unread_by(each, run)}
    is_off = any(each.id == "config-of-another-engine" for each in every)
    for each in every:
        is_lost = each.id == "missing-file" and _FILE in [label.path for label in each.labels]
        if each.file in unread or (unread and each.id in _OF_ENGINE) or (is_off and is_lost):
            yield replace(each, severity="note")
            continue
        if _is_asked_first(run, each) or _is_of_own_loop(run, each) or _is_apart(run, each):
            continue
        pattern = _SETTLED.get(each.id)
        text = None if pattern is None else _settling(run, each)
        asked = programs_at(run, each) if each.id == "reentrant-over-frozen-base" else ()
        if any(map(run.own.lacks_program, asked)):  # they may call enable_input_require_grads()
            yield replace(each, severity="note")
        elif pattern is None or text is None or not pattern.search(text):
            is_note = _is_meant(each) or _is_of_another(run, each)
            yield replace(each, severity="note") if is_note else each


def _settling(run: LintContext, found: Diagnostic) -> str | None:
    """The text in which a pattern is searched."""
    if found.id not in _FURTHER:
        return _source_at(run, found)
    text = "\n".join(_texts_of(run, found))
    return text or (run.own.every_text if found.id in _OF_SAVING else None)


def programs_about(run: LintContext, found: Diagnostic) -> list[str]:
    """The programs that a finding is about: that of its command, or for a file those of its run."""
    return programs_at(run, found) or [name for each in run.started.values() for name in each]


def _texts_of(run: LintContext, found: Diagnostic) -> list[str]:
    """The sources of the programs that a finding is about, with what they import."""
    return [text for name in programs_about(run, found) for text in run.own.sources_of(name)]


def _is_of_own_loop(run: LintContext, found: Diagnostic) -> bool:
    """Whether it is about the Trainer, and the program's trainer is its own class.

    The Trainer also does not compare a DeepSpeed file that its arguments get after they are
    created.
    """
    if found.id not in _OF_TRAINERS_LOOP or found.severity == "note":
        return False
    if found.id == "deepspeed-and-trainer-differ" and run.own.shows(_SET_LATE):
        return True
    text = "\n".join(_texts_of(run, found)) or run.own.every_text
    made = frozenset(_MADE.findall(text))
    return bool(made) and made <= _own_classes(text) and _TAKEN.search(text) is None


_OF_BOTH: Final = ("deepspeed-and-trainer-differ", "scheduler-overridden", "optimizer-overridden")
"""Rules about a DeepSpeed file that the Trainer gets."""
_INITIALIZES: Final = re.compile(r"\bdeepspeed\.initialize\(")


def _is_apart(run: LintContext, found: Diagnostic) -> bool:
    """Whether a program hands the file to DeepSpeed itself, and no command to the Trainer."""
    if found.id not in _OF_BOTH or run.hides("trainer", "deepspeed"):
        return False
    is_given = run.said("trainer", "deepspeed") or any(run.each("accelerate", _FILE))
    return not is_given and run.own.shows_in(programs_about(run, found), _INITIALIZES)


_BELOW: Final = re.compile(r"(?m)^class (\w+)\(\s*(\w+)\s*\):")
_TAKEN: Final = re.compile(
    r"(?s)from (?:transformers|trl)[\w.]* import (?:\([^)]*|[^\n(]*)\b\w*Trainer\b"
)


def _own_classes(text: str) -> frozenset[str]:
    """Classes of the repository whose bases come from no other package either."""
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
_ASKS: Final = re.compile(
    r"\bsignature\(|\bhasattr\(\s*[\w.]*Config\b|except\s*\(?[^:\n]*\bTypeError\b"
)
_OF_ADAPTERS: Final = ("lora-alpha-of-zero", "lora-rank-not-positive", "lora-pair-refused")
_ADAPTS: Final = re.compile(r"get_peft_model|add_adapter|inject_adapter|[(,]\s*peft_config\s*=")


_PASSES_OVER: Final = re.compile(r"return_remaining_strings\s*=\s*True|parse_known_args\(")
"""How a program parses if it accepts unknown flags."""
_OF_FLAGS: Final = _BY_RELEASE | {"key-of-no-class", "required-field-missing"}
_STEPS: Final = re.compile(r"Trainer\b|\.backward\(|Accelerator\(")
"""What a program that trains contains, whatever else it takes from the Trainer."""
_LLAMAFACTORY: Final = re.compile(r"llamafactory|llmtuner")
_OF_LOOP: Final = frozenset({"several-devices-in-one-process", "required-field-missing"})
"""Rules about commands that apply only if they start the Trainer."""


def _is_of_another(run: LintContext, found: Diagnostic) -> bool:
    """Whether the started program accepts flags that it does not know, or uses no known trainer."""
    if found.severity == "note":
        return False
    if found.id == "script-flag-unknown":
        return any(name.startswith(("/", "~")) for name in programs_at(run, found))
    if found.id not in _OF_FLAGS | _OF_LOOP:
        return False
    text = _source_at(run, found)
    if found.id in _OF_LOOP:
        is_verls = any(name.startswith("verl") for name in programs_at(run, found))
        trains = text is None or (OF_TRAINER.search(text) and _STEPS.search(text))
        return is_verls or not trains or (found.id in _OF_FLAGS and _fills_own(text or ""))
    return text is not None and bool(_PASSES_OVER.search(text) or _fills_own(text))


_FILLED: Final = re.compile(r"\bH(?:f|4)ArgumentParser\(\s*\(?([\w\s,]*)\)")


def _fills_own(text: str) -> bool:
    """Whether a program's parser fills classes alone that are its own, and no trainer's."""
    filled = {name for each in _FILLED.findall(text) for name in each.replace(",", " ").split()}
    return bool(filled) and filled <= frozenset(_ALONE.findall(text))


def _is_asked_first(run: LintContext, found: Diagnostic) -> bool:
    """Whether a script asks for its settings, or makes a config without training."""
    if not found.file.endswith(".py"):
        return False
    text = next((each.text for each in run.documents if each.name == found.file), "")
    if found.id in _BY_RELEASE:
        return _ASKS.search(text) is not None
    if found.id == "bf16-updates-lost":
        return "deepspeed_plugin" in text  # DeepSpeed keeps fp32 copies
    return found.id in _OF_ADAPTERS and _ADAPTS.search(text) is None


def _is_meant(found: Diagnostic) -> bool:
    """Whether the file's own name says that the finding is intended."""
    return found.id in _MEANT and bool(_MEANT[found.id].search(PurePath(found.file).stem))


_FOR_ONE: Final = re.compile(r"(?i)single|(?<![a-z\d])(?:one|1)[_-]?(?:gpu|device)")
_TRIAL: Final = re.compile(r"(?i)(?<![a-z])(?:tests?|debug|smoke|(?:auto)?tun(?:e|ing))(?![a-z])")
_MEANT: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(("processes-without-engine", "zero-of-one-process"), _FOR_ONE),
    **dict.fromkeys(("interval-of-zero", "autotuning-left-on"), _TRIAL),
}


def _source_at(run: LintContext, found: Diagnostic) -> str | None:
    """The source of the program whose command has a finding."""
    return next((run.own.text_of(name) for name in programs_at(run, found)), None)


def programs_at(run: LintContext, found: Diagnostic) -> list[str]:
    """The program whose command has a finding, if it is known."""
    line = 0 if found.span is None else found.span.line
    started = run.started.get(found.file, {})
    before = [(at.span.line, name) for name, at in started.items() if at.span.line <= line]
    return [max(before)[1]] if before else list(started)[:1]


# ── what is only taken ────────────────────────────────────────────────────────────────────────────

_OF_WORDS: Final = ("parse", "load", "init")
"""Where a reader checks keys and words, of which the repository may have its own."""
_OF_OLD: Final = "llmtuner"
"""LLaMA-Factory before 0.8, whose releases are not read."""
_COPIES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(TRL, ("trl",)),
    "hf": ("transformers",),
    "llamafactory": ("llamafactory", _OF_OLD),
    "ms-swift": ("swift",),
    **{name: (name,) for name in ("accelerate", "axolotl", "deepspeed", "openrlhf", "simpletuner")},
}
"""The packages that read the files of a kind; a repository may contain a copy of them."""
_IMPORTS_OLD: Final = re.compile(rf"(?m)^(?:from|import) {_OF_OLD}\b")
_OF_READING: Final = frozenset({"number-as-text", "boolean-as-text", "value-of-another-type"})
"""Rules about how the value of a file is read."""
_AS_TEXT: Final = re.compile(r"""f["']--\{\w+\}["'][\s\S]{0,600}?\bstr\(\w+\)""")
_NAME: Final = re.compile(r"(?!(?:torch|np|numpy|os)\.)[a-z_]\w*(?:\.(\w+)|\[[^\]\n]*\])*\Z")
"""How Python refers to a value defined elsewhere; constants are in capitals."""


def as_known(found: Iterable[Diagnostic], run: LintContext) -> Iterator[Diagnostic]:
    """What is found, with a note of what rests on a reading that is only taken."""
    for each in found:
        why = None if each.severity == "note" else _doubt(run, each)
        yield each if why is None else lowered(each, why)


def _doubt(run: LintContext, found: Diagnostic) -> Reason | None:
    if any(_is_by_name(run, each) for each in found.labels):
        return BY_NAME
    at = None if found.primary is None else _place(run, found.primary)
    if at is None or at.document.format == "python":
        return None
    kind, key = at.document.kind, at.path.removeprefix("--").rpartition(".")[2]
    is_of_words = found.consequence in _OF_WORDS and found.id != "missing-file"
    if kind == "llamafactory" and _is_of_own_program(run, found, at.document):
        return OWN_PROGRAM
    if key == "template":
        return OWN_TEMPLATE if run.own.registers(str(at.value), "register_template") else None
    if is_of_words and isinstance(at.value, str) and run.own.registers(at.value):
        return OWN_WORD
    if _is_of_a_copy(run, kind, is_of_words=is_of_words):
        return OWN_COPY
    if found.id in _OF_READING and run.own.shows(_AS_TEXT):
        return AS_TEXT
    if kind not in _OF_CLASSES:
        return None
    if at.document.format == "shell" and run.own.parses(key, programs_at(run, found)):
        return OWN_FLAG
    return OWN_FIELD if is_of_words and run.own.declares(key) else None


def _is_of_a_copy(run: LintContext, kind: str, *, is_of_words: bool) -> bool:
    """Whether a copy in the repository reads the files of a kind, and may have other words.

    What has no release that is read may do anything else otherwise, too.
    """
    if kind == "llamafactory" and (run.own.packs(_OF_OLD) or run.own.shows(_IMPORTS_OLD)):
        return True
    copies = filter(run.own.packs, _COPIES.get(kind, ()))
    return is_of_words and any(not run.own.is_release_of(each) for each in copies)


def _is_of_own_program(run: LintContext, found: Diagnostic, flags: Document) -> bool:
    """Whether a program of the repository that LLaMA-Factory has nothing to do with is started."""
    is_its = flags.format == "shell" and _source_at(run, found) is not None
    return is_its and not run.own.shows_in(programs_about(run, found), _LLAMAFACTORY)


def _place(run: LintContext, label: Label) -> Place | None:
    """The key at a label."""
    file = "" if label.span is None else label.span.file
    mine = (each.found.get(label.path) for each in run.documents if each.name == file)
    return next((at for at in mine if at and label.span in (at.span, at.key_span)), None)


def _is_by_name(run: LintContext, label: Label) -> bool:
    """Whether a call gives a value by a variable, and no command of the run gives that flag."""
    at = _place(run, label)
    if at is None or at.document.format != "python" or label.span == at.key_span:
        return False
    span = at.span
    line = lines_of(at.document.text)[span.line - 1]
    name = _NAME.match(line[span.column - 1 : span.end_column - 1])
    if name is None or span.line != span.end_line:
        return False
    flag = re.compile(rf"--{re.escape(name[1] or name[0])}(?![\w-])")
    return not any(flag.search(each.text) for each in run.documents if each.format == "shell")
