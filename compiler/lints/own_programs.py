"""Programs that lie beside their commands: their own source says what they do with their flags.

A command's flags are read as the trainer's whose fields they are. A program of the repository may
parse them by itself, or settle by itself what a rule asks of them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.schemas.frozen import replace

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
    return bool(texts) and all(
        text is not None and _PARSES.search(text) and not _OF_TRAINER.search(text) for text in texts
    )


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
}
"""What a program's source shows where a rule's finding in its flags is not so: it places the model
on several devices, builds the adapter for a head, trains what makes the input of the first layer,
says how long it generates, loads in no dtype that is given, or makes its adapters in fp32."""


def unless_settled(found: Iterable[Diagnostic], run: LintContext) -> Iterator[Diagnostic]:
    """What is found, without what the started program's own source settles otherwise."""
    every = tuple(found)
    unread = {name for each in every for name in _unread_by(each, run)}
    for each in every:
        if each.file in unread or (unread and each.id in _OF_ENGINE):
            yield replace(each, severity="note")
            continue
        pattern = _SETTLED.get(each.id)
        text = None if pattern is None else _source_at(run, each)
        if _is_asked_first(run, each):
            continue
        if pattern is None or text is None or not pattern.search(text):
            is_note = _is_meant(each) or _is_of_another(run, each)
            yield replace(each, severity="note") if is_note else each


_OF_ENGINE: Final = frozenset({"accumulation-left-out", "cpu-optimizer-on-one-thread"})
"""Rules about a command whose findings follow from the engine that it starts."""


def _unread_by(found: Diagnostic, run: LintContext) -> Iterator[str]:
    """The engine's files that a command names without the switch that starts the engine."""
    flags = (each.path for each in found.labels)
    if found.id == "engine-flags-unread" and "flags.deepspeed_config_file" in flags:
        yield from (each.name for each in run.of("deepspeed"))


_BY_RELEASE: Final = frozenset(
    {"argument-of-no-release", "field-of-another-release", "key-of-another-release"}
)
_ASKS: Final = re.compile(r"\bsignature\(|except\s*\(?[^:\n]*\bTypeError\b")
_ADAPTS: Final = re.compile(r"get_peft_model|add_adapter|inject_adapter|[(,]\s*peft_config\s*=")


_PASSES_OVER: Final = re.compile(r"return_remaining_strings\s*=\s*True|parse_known_args\(")
"""How a program parses that takes flags which nobody knows."""
_OF_FLAGS: Final = _BY_RELEASE | {"key-of-no-class", "required-field-missing"}
_OF_LOOP: Final = frozenset({"several-devices-in-one-process", "required-field-missing"})
"""Rules about commands that hold where the Trainer is what they start."""


def _is_of_another(run: LintContext, found: Diagnostic) -> bool:
    """Whether the started program takes flags that it does not know, or trains by nothing known."""
    if found.id not in _OF_FLAGS | _OF_LOOP or found.severity == "note":
        return False
    text = _source_at(run, found)
    if found.id in _OF_LOOP:
        started = run.started.get(found.file, {})
        is_elsewhere = bool(started) and all(name.startswith("verl") for name in _at(run, found))
        return is_elsewhere or (text is not None and not _OF_TRAINER.search(text))
    return text is not None and _PASSES_OVER.search(text) is not None


def _is_asked_first(run: LintContext, found: Diagnostic) -> bool:
    """Whether a script asks what the class takes, or makes a config to train nothing with."""
    if not found.file.endswith(".py"):
        return False
    text = next((each.text for each in run.documents if each.name == found.file), "")
    if found.id in _BY_RELEASE:
        return _ASKS.search(text) is not None
    return found.id == "lora-alpha-of-zero" and _ADAPTS.search(text) is None


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
