"""Findings that are passed over: those of a baseline, and names that a spec allows.

And those that rest on a guess, as how files go together: they are notes, whatever the rule says.
So are those that a program of the repository settles: a command's flags are read as the trainer's
whose fields they are, and the program may parse them by itself, or do what a rule asks for.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from tunec.compiler.diagnostics.codes import is_code, known_names
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import nearest_one, nearly
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRAINERS, TRL, Document
from tunec.compiler.lints.index import rule_names
from tunec.schemas.frozen import replace
from tunec.schemas.source import dotted

_VERSION: Final = 1
Key = tuple[str, str, str, str]


class NotABaseline(ValueError):
    """The text is no baseline file; the message says why."""


def write_baseline(diagnostics: Iterable[Diagnostic]) -> str:
    """The file that accepts these findings, and no others like them. Hard errors stay out."""
    counted = Counter(key_of(each) for each in diagnostics if not is_code(each.id))
    names = ("name", "file", "path", "message")
    entries = [
        {**dict(zip(names, key, strict=True)), "count": n} for key, n in sorted(counted.items())
    ]
    return (
        json.dumps({"baseline": _VERSION, "findings": entries}, indent=2, ensure_ascii=False) + "\n"
    )


def read_baseline(text: str) -> "Counter[Key]":
    """How often each finding is accepted; raise NotABaseline."""
    try:
        data = json.loads(text)
        if data["baseline"] != _VERSION:
            raise NotABaseline(f"it is of version {data['baseline']}, not {_VERSION}")
        return Counter(
            {
                (e["name"], e["file"], e["path"], e["message"]): int(e["count"])
                for e in data["findings"]
            }
        )
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as fault:
        if isinstance(fault, NotABaseline):
            raise
        raise NotABaseline("it was not written by --write-baseline") from None


def without(diagnostics: Iterable[Diagnostic], baseline: "Counter[Key]") -> tuple[Diagnostic, ...]:
    """The findings that the baseline does not hold; of equal ones, those beyond its count."""
    left = baseline.copy()
    kept = []
    for each in diagnostics:
        key = key_of(each)
        if left[key] > 0 and not is_code(each.id):
            left[key] -= 1
        else:
            kept.append(each)
    return tuple(kept)


def key_of(diagnostic: Diagnostic) -> Key:
    """What makes a finding the same one after lines have moved."""
    first = diagnostic.primary
    file = first.span.file if first and first.span else ""
    return (diagnostic.id, file, first.path if first else "", diagnostic.message)


_LIKE: Final = 0.8
_MOST_COMPARED: Final = 100
"""Unknown names for which a known one is looked for: more are no misspelt ones."""


def unknown_allowances(names: Iterable[str]) -> Iterator[Diagnostic]:
    """A warning for each name that nearly is a known one; a note for others.

    A policy has rules with names of its own, which are not known here.
    """
    names = tuple(names)
    known = frozenset((*known_names(), *rule_names())) if names else frozenset()
    for at, name in enumerate(name for name in names if name not in known):
        near = nearest_one(name, known) if at < _MOST_COMPARED else None
        is_near = near is not None and nearly(name, (near,), _LIKE) is not None
        yield _unknown(name, near, is_near=is_near)


def _unknown(name: str, near: str | None, *, is_near: bool) -> Diagnostic:
    return Diagnostic(
        "allowance-of-no-rule",
        "warning" if is_near else "note",
        f"`allow.{name}` does not name a rule, so it has no effect",
        (Label("no such rule", None, dotted(("allow", name))),),
        () if is_near else ("a policy may have a rule of that name",),
        f"did you mean `{near}`?" if near else "see `tunec catalog rules`",
    )


_TOGETHER: Final = "no file says that these are one run: name them together if they are"


def unless_guessed(
    found: Iterable[Diagnostic], alone: Iterable[Sequence[Diagnostic]]
) -> tuple[Diagnostic, ...]:
    """What is found in files together, with a note of what none of them shows by itself.

    The files were put together since they lie near each other, and no script starts one with the
    other: what follows from two of them is only possible.
    """
    shown = {_place(each) for every in alone for each in every}
    return tuple(each if _place(each) in shown else _noted(each, _TOGETHER) for each in found)


_READ_BY_ITSELF: Final = "a script of this repository loads the file, and takes its keys itself"
_KINDS: Final = (*TRAINERS, "axolotl", "llamafactory", "unsloth", "ms-swift", "accelerate")
_FORMATS: Final = ("yaml", "json", "toml")


def unless_own(found: Iterable[Diagnostic], run: LintContext) -> Iterator[Diagnostic]:
    """What is found, with a note of what stands in a file that the repository's own scripts read.

    It has the keys of a program that is known, and another reader.
    """
    of_trainers = [each for each in run.documents if each.kind in _KINDS]
    by_name = {each.name: each for each in reversed(of_trainers)}
    own = {each.name: _READ_BY_ITSELF for each in of_trainers if _is_own(each, run)}
    own |= {each.name: _TEMPLATE for each in of_trainers if _is_template(each)}
    of_verl = run.of("verl")
    if of_verl and run.own.shows(_OF_VERL):
        own |= {each.name: _CHANGED for each in of_verl}
    for each in found:
        if each.file in own:
            yield _noted(each, own[each.file])
        else:
            is_set = _is_set(each, by_name.get(each.file), run)
            yield _noted(each, _SET_LATER) if is_set else each


_TEMPLATE: Final = "much of the file is left empty, as a template's: what fills it is not known"
_CHANGED: Final = "this repository has a verl of its own, which may read it otherwise"
_OF_VERL: Final = re.compile(r"(?m)^class (?:RayPPOTrainer|ActorRolloutRefWorker)\b")
_EMPTY: Final = 0.4
_LEAST_KEYS: Final = 20


def _is_template(document: Document) -> bool:
    """Whether so many keys have no value that something fills them in.

    Axolotl's own examples leave up to 0.35 of them empty.
    """
    values = [at.value for key, at in document.found.items() if "." not in key]
    is_file = document.format in _FORMATS and not document.is_view
    return is_file and len(values) >= _LEAST_KEYS and values.count(None) >= _EMPTY * len(values)


_SET_LATER: Final = "a script of this repository sets it itself after it has read it"


def _is_set(found: Diagnostic, document: Document | None, run: LintContext) -> bool:
    """Whether a script has the last word about the key of a document that a finding stands at."""
    label = found.primary
    if label is None or document is None or _is_axolotls_own(document, run):
        return False
    return found.severity != "note" and run.own.sets(label.path.removeprefix("--"))


_AXOLOTL_ITSELF: Final = re.compile(r"(?m)^class AxolotlInputConfig\b")
"""Axolotl's repository, or a copy of it: its scripts are the reader that is known."""


def _is_axolotls_own(document: Document, run: LintContext) -> bool:
    return document.kind == "axolotl" and run.own.shows(_AXOLOTL_ITSELF)


def _is_own(document: Document, run: LintContext) -> bool:
    if document.is_view or document.format not in _FORMATS or document.kind not in _KINDS:
        return False
    if _is_axolotls_own(document, run):
        return False
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


def _noted(found: Diagnostic, why: str) -> Diagnostic:
    if found.severity == "note":
        return found
    return replace(found, severity="note", notes=(*found.notes, why), fix=None)


def _place(found: Diagnostic) -> tuple[object, ...]:
    label = found.primary
    return found.id, None if label is None else label.span


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
    is_off = any(each.id == "config-of-another-engine" for each in every)
    for each in every:
        is_lost = each.id == "missing-file" and _FILE in [label.path for label in each.labels]
        if each.file in unread or (unread and each.id in _OF_ENGINE) or (is_off and is_lost):
            yield replace(each, severity="note")
            continue
        if _is_asked_first(run, each):
            continue
        pattern = _SETTLED.get(each.id)
        text = None if pattern is None else _source_at(run, each)
        is_unseen = each.id == "reentrant-over-frozen-base" and any(
            map(run.own.lacks_program, _at(run, each))
        )
        if is_unseen:  # what is not there may call enable_input_require_grads()
            yield replace(each, severity="note")
        elif pattern is None or text is None or not pattern.search(text):
            is_note = _is_meant(each) or _is_of_another(run, each)
            yield replace(each, severity="note") if is_note else each


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
