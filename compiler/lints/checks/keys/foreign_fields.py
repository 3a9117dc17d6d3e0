"""Keys that the class, call or section that holds them does not have."""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from tunec.compiler.consumers.moved_keys import moved_key
from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.diagnostics.diagnostic import Fix, Severity
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted
from tunec.compiler.lints.checks.keys.fields import OF_UNSLOTH, is_patched
from tunec.compiler.lints.checks.keys.names import is_near
from tunec.compiler.lints.checks.keys.other_tools import OF_ENGINES
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.facts.key_releases import HANDBOOK, PPO
from tunec.compiler.lints.facts.known_keys import (
    fields_ever,
    fields_of,
    foreign_keys,
    keys_ever,
    script_keys,
)
from tunec.compiler.lints.kinds import known_keys
from tunec.compiler.lints.rule import Finding, of_known_release, rule
from tunec.compiler.lints.schemas import Fault, Schema, faults, schemas
from tunec.compiler.target import Target
from tunec.schemas.caches import ByIdentity

_KINDS: Final = ("hf", *TRL)
_PARSER: Final = "HfArgumentParser and TrlParser refuse a key that none of the script's classes has"
_MOST: Final = 4
"""The number of unknown keys that are named, each with the nearest known key."""


@rule(
    "warning",
    "parse",
    consumers=("transformers", "trl"),
    reads=tuple(f"{kind}:*" for kind in _KINDS),
)
def key_of_no_class(run: LintContext) -> Iterator[Finding]:
    """Keys of a trainer's file that neither its classes nor any other program has."""
    for document in run.of(*_KINDS):
        if document.is_view or document.format in ("shell", "env", "python"):
            continue
        mine = _fields(document.kind)
        tops = ((key, at) for key, at in document.found.items() if "." not in key)
        others = {key: at for key, at in tops if key not in mine}
        unknown = {key: at for key, at in others.items() if _is_unclaimed(run, key, mine)}
        if unknown:
            is_whole = len(unknown) == len(others) and _is_surely(document)
            yield _finding(document, unknown, mine, is_whole=is_whole)


def _is_surely(document: Document) -> bool:
    """Whether the file is surely of this class: other scripts name models and data alike."""
    own = _fields("hf") if document.kind == "hf" else keys_ever(document.kind) - _fields("hf")
    return not own.isdisjoint(document.found)


def _fields(kind: str) -> frozenset[str]:
    """The keys that the script takes: those of TrainingArguments only, or of TRL's script."""
    if kind == "hf":
        return fields_ever("training_arguments")
    today = (each for each in HANDBOOK.values() if each is not None)
    return keys_ever(kind) | script_keys() | frozenset((*HANDBOOK, *today, *PPO))


def _is_unclaimed(run: LintContext, key: str, mine: frozenset[str]) -> bool:
    is_private = key.startswith(("_", "//", "#", "<<"))
    if is_private or key in OF_ENGINES or is_near(key, mine):
        return False
    return key not in _ALL.of(run.targets) and not run.own.declares(key)


def _every_key(targets: Mapping[str, Target]) -> frozenset[str]:
    every = (known_keys(target, file) for target in targets.values() for file in target.files)
    return frozenset[str]().union(*every)


_ALL: Final = ByIdentity("keys of all programs", 4, _every_key)


def _finding(
    document: Document, unknown: Mapping[str, Place], mine: frozenset[str], *, is_whole: bool
) -> Finding:
    """One finding for a file's unknown keys, some of which may be a script's own."""
    free = mine.difference(document.found)
    near = {key: _nearest(key, free) for key in unknown}
    told = [f"`{key}`: {did_you_mean(names)}" for key, names in near.items() if names]
    only = next(iter(near.values())) if len(near) == 1 else []
    return Finding(
        f"no program that is known has a key {quoted(unknown)}",
        tuple(at.key_label("no such field") for at in unknown.values()),
        (_PARSER, *(told[:_MOST] if len(unknown) > 1 else ())),
        did_you_mean(only) or "remove what the script has no class for",
        certain=is_whole and all(near.values()),
    )


def _nearest(key: str, fields: frozenset[str]) -> list[str]:
    """The nearest fields, under their current names."""
    return list(dict.fromkeys(map(_today, nearest(key, fields))))


def _today(field: str) -> str:
    moved = moved_key("transformers", field)
    return moved.new if moved is not None and moved.new and "." not in moved.new else field


_CLASSES: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "hf": ("TrainingArguments", "transformers", ("seq2seq_training_arguments",)),
    "peft": ("LoraConfig", "peft", ("lora_config",)),
    **{kind: (f"{kind.upper()}Config", "trl", (f"{kind}_config",)) for kind in TRL},
    "reward": ("RewardConfig", "trl", ("reward_config",)),
}
"""Kind -> the class, its package, and the names of the schemas of its known fields."""
_OF_TRAINER: Final = "training_arguments"


@rule(
    "error",
    "parse",
    consumers=("transformers", "trl", "peft"),
    reads=tuple(f"{kind}:*" for kind in _CLASSES),
)
def argument_of_no_release(run: LintContext) -> Iterator[Finding]:
    """A call passes a class an argument that no known release of the class has."""
    for document in run.of(*_CLASSES):
        if document.format != "python" or document.is_view:
            continue
        oldest = known_releases(_CLASSES[document.kind][2][0])[0]
        if run.runs(f"{_CLASSES[document.kind][1]}>={oldest}") is False:
            continue
        known = _arguments_of(document)
        known |= OF_UNSLOTH if is_patched(document.text) else frozenset()
        told = _told_elsewhere(run, document)
        today = _of_release(run, document)
        for path, place in document.named.items():
            if "." not in path and path not in known and path not in told:
                yield _no_argument(place, known)
            elif path in known and today is not None and path not in today:
                yield _not_in_this_one(run, place)


def _of_release(run: LintContext, document: Document) -> frozenset[str] | None:
    """LoraConfig's fields in the release of peft in use; None if this is unknown."""
    release = run.release("peft")
    if document.get("peft_type") is None or not release.is_known:
        return None  # it is no LoraConfig, or nobody says which one
    try:
        return frozenset(class_schema("lora_config", str(release.version))["properties"])
    except LookupError:
        return None


def _not_in_this_one(run: LintContext, place: Place) -> Finding:
    stem = "lora_config"
    having = [each for each in known_releases(stem) if place.path in fields_of(stem, each)]
    return Finding(
        f"LoraConfig of {run.release('peft')} takes no argument `{place.path}`",
        (place.key_label("TypeError: unexpected keyword argument"),),
        (f"releases that are known to have it: {having[0]} to {having[-1]}",),
        f"install peft {having[0]} or later, or remove it",
    )


def _arguments_of(document: Document) -> frozenset[str]:
    _, package, stems = _CLASSES[document.kind]
    own = frozenset[str]().union(*(fields_ever(each) for each in stems))
    return own if package == "peft" else own | fields_ever(_OF_TRAINER)


def _told_elsewhere(run: LintContext, document: Document) -> frozenset[str]:
    """Keys that `unknown-key` reports as misspelt, and keys from before the known releases."""
    if document.kind != "hf":
        return frozenset()
    return frozenset(place.path for place, _ in foreign_keys(run, document))


def _no_argument(place: Place, known: frozenset[str]) -> Finding:
    name, package, stems = _CLASSES[place.document.kind]
    releases = known_releases(stems[0])
    return Finding(
        f"{name} takes no argument `{place.path}`",
        (place.key_label("TypeError: unexpected keyword argument"),),
        (f"no release of {package} from {releases[0]} to {releases[-1]} has it",),
        did_you_mean(nearest(place.path, known)) or "give it to what takes it, or remove it",
    )


KINDS: Final = ("nemo-automodel", "unsloth", "verl")
"""Kinds of files that consist of sections, each with its own schema."""


@rule(
    "error", "parse", consumers=KINDS, reads=tuple(f"{kind}:*" for kind in KINDS), unless="declared"
)
def key_outside_its_section(run: LintContext) -> Iterator[Finding]:
    """A section contains a key that it does not have."""
    for document in chain.from_iterable(map(run.of, KINDS)):
        if _OF_ANOTHER.search(document.text):
            continue  # the keys of that program, or of that engine, are others
        unknown = [
            _not_here(fault, schemas(run, document)[0])
            for fault in faults(run, document)
            if fault.what == "unknown" and not fault.path.startswith(_NAMED)
        ]
        first = _FIRST.get(document.kind)
        yield from unknown if first is None else of_known_release(unknown, run, first)


_FIRST: Final = {"verl": "verl>=0.8"}
"""From which release on the sections of a kind's files are known."""
_NAMED: Final = "distillation.teacher_models."
"""Names that users choose: verl 0.9.0 and 0.9.1 workers/config/distillation.py."""


_OF_ANOTHER: Final = re.compile(
    r"fsdp_sft_trainer|\bmodel_engine=(?!dp\b)\w|(?:^|\s)engine=(?!fsdp\b)\w", re.MULTILINE
)
"""verl 0.3 to 0.7 trainer/fsdp_sft_trainer.py, another program with its own keys; 0.8.0 to 0.9.1
trainer/config/model_engine, engine: Hydra groups whose sections have other keys."""


def _not_here(fault: Fault, whole: Schema) -> Finding:
    holder, _, name = fault.path.rpartition(".")
    where = f"section `{holder}`" if holder else "the file"
    return Finding(
        f"{where} has no key `{name}`",
        (fault.place.key_label("refused" if fault.is_refused else "ignored"),),
        () if fault.is_refused else ("it is silently dropped",),
        *_instead(fault.place, holder, name, whole, fault.schema),
        consequence=None if fault.is_refused else "silent",
        severity=None if fault.is_refused else _idle(fault),
    )


def _idle(fault: Fault) -> Severity:
    """The severity: a note if the key is off, or stands in a section that is off."""
    document, holder = fault.place.document, fault.path.rpartition(".")[0]
    parts = holder.split(".") if holder else []
    above = [".".join(parts[: at + 1]) for at in range(len(parts))]
    is_off = any(document.value(f"{each}.enable") is False for each in above)
    return "note" if is_off or fault.place.value in (None, False) else "warning"


def _instead(
    place: Place, holder: str, name: str, whole: Schema, around: Schema
) -> tuple[str, Fix | None]:
    """The key that was probably meant: in another section, or of a similar name in this section."""
    said = name.replace("-", "_")
    home = next((path for path in _paths(whole) if path.rpartition(".")[2] == said), None)
    if home is not None and home.rpartition(".")[0] != holder:
        section = home.rpartition(".")[0]
        return (f"move it to section `{section}`" if section else "move it to the top"), None
    near = nearest(said, around.get("properties", {}))[:1]
    if (
        near
        and is_near(said, frozenset(near))
        and place.document.get(f"{holder}.{near[0]}" if holder else near[0]) is None
    ):
        return f"did you mean `{near[0]}`?", Fix((place.renamed(near[0]),), "unsafe")
    return "remove it", None


def _paths(whole: Schema) -> Iterator[str]:
    for name, each in whole["properties"].items():
        yield name
        yield from (f"{name}.{key}" for key in each.get("properties", {}))
