"""Flags that the parsers of OpenRLHF's programs refuse."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.openrlhf_flags import RENAMED, RENAMED_OF_REWARDS
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, nearest
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.facts.training_loop import is_number, is_whole
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Finding, of_known_release, rule
from tunec.schemas.caches import cached
from tunec.targets.openrlhf.packages import RELEASES

OF_REWARDS: Final = "actor."
"""The section of the program for rewards, which README.md of 0.10.2 to 0.11.2 also shows for SFT
and DPO."""


_KIND: Final = "openrlhf"
_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    _KIND: ("train_sft", "train_dpo"),
    "openrlhf-rm": ("train_rm",),
    "openrlhf-ppo": ("train_ppo_ray",),
}
"""The programs of each kind of flags."""
_OF_REWARDS: Final = "openrlhf-ppo"
_LAUNCHERS: Final = ("python", "torchrun", "deepspeed", "accelerate")
_SECTIONED: Final = "openrlhf>=0.10.2"
_REFUSED: Final = "argparse ends the program: unrecognized arguments"
_OF_TEXTS: Final = (("model.model_name_or_path", "a model"), ("data.dataset", "data"))
_OF_PROMPTS: Final = (("actor.model_name_or_path", "a model"), ("data.prompt_dataset", "data"))
"""Flags that are None by default, and without which nothing is loaded."""
_TYPES: Final = {"integer": "a whole number", "number": "a number"}


@rule(
    "error",
    "parse",
    consumers=("openrlhf",),
    reads=("openrlhf:*", "openrlhf-rm:*", "openrlhf-ppo:*"),
    hardware=True,
)
def flag_refused_by_openrlhf(run: LintContext) -> Iterator[Finding]:
    """A flag or value that the program's parser refuses, or a missing one."""
    flags = (each for kind in _PROGRAMS for each in run.of(kind) if each.get("launcher") is None)
    for document in flags:
        if run.runs(_SECTIONED) is not False:
            yield from _parsed(run, document)
        if document.kind != _OF_REWARDS:
            yield from _shares(run, document)


def _parsed(run: LintContext, document: Document) -> Iterator[Finding]:
    """What the parser says of a command's flags; nothing of values if an older one may read it."""
    known = {name: each for at in _programs(run, document) for name, each in _flags(at).items()}
    flags = {key: at for key, at in document.found.items() if not at.node.fields}
    unknown = [
        _unknown(at.path, at, known)
        for key, at in flags.items()
        if at.path != key or not _named(key, known)
    ]
    told = list(of_known_release(unknown, run, _SECTIONED))
    yield from told
    if len(told) == len(unknown):
        for path, place in flags.items():
            yield from _flag(document, path, place, known)
        yield from _missing(document)


def _programs(run: LintContext, document: Document) -> Iterator[str]:
    """The programs that its script starts; if a variable names them, all of its kind."""
    of_kind = _PROGRAMS[document.kind]
    words = [
        word
        for each in launches(run, *_LAUNCHERS)
        if each.name == document.name and (at := each.get("script")) is not None
        for word in [at.first_word]
    ]
    named = [name for name in of_kind if any(name in str(word) for word in words)]
    yield from named or of_kind


@cached()
def _flags(program: str) -> Mapping[str, Any]:
    """The schema of each flag by its full name, from the newest release that has it."""
    told = (schema(f"openrlhf/{program}/{release}.json") for release in RELEASES)
    return {name: flag for each in told for name, flag in _below(each["properties"], "")}


def _below(properties: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, each in properties.items():
        if "properties" in each:
            yield from _below(each["properties"], f"{prefix}{name}.")
        else:
            yield prefix + name, each


def _flag(
    document: Document, path: str, place: Place, known: Mapping[str, Any]
) -> Iterator[Finding]:
    name = _named(path, known)
    if name is not None and not document.hides(path):
        yield from _value(path, place, known[name])


def _named(path: str, known: Mapping[str, Any]) -> str | None:
    """The flag that a word names: argparse takes the beginning of one for it."""
    whole = [path] if path in known else [name for name in known if name.startswith(path)]
    return whole[0] if len(whole) == 1 else None


def _unknown(path: str, place: Place, known: Mapping[str, Any]) -> Finding:
    new = next((each for each in _new_names(path) if each in known), None)
    if new is not None:
        why = f"before 0.10.2 it is --{path}, and since then --{new}"
        return _renamed(path, new, place, why, "safe")
    moved = f"model.{path.removeprefix(OF_REWARDS)}"
    if path.startswith(OF_REWARDS) and moved in known:
        why = "only the program for rewards has sections that begin with actor"
        return _renamed(path, moved, place, why, "safe")
    near = nearest(path, known)[:1]
    return _renamed(path, near[0] if near else "", place, "", "unsafe")


def _new_names(path: str) -> tuple[str, ...]:
    """The new names of a renamed flag: first that of its own program."""
    return tuple(names[path] for names in (RENAMED_OF_REWARDS, RENAMED) if path in names)


def _renamed(path: str, new: str, place: Place, why: str, how: Any) -> Finding:
    return Finding(
        f"the program has no flag --{path}",
        (place.key_label("refused"),),
        (why,) if why else (_REFUSED,),
        f"write --{new}" if new else "remove it",
        Fix((place.renamed(new),), how) if new else None,
    )


def _value(path: str, place: Place, flag: Mapping[str, Any]) -> Iterator[Finding]:
    """A value that argparse cannot convert to the flag's type."""
    value, words = place.value, flag.get("enum")
    if words is not None and value not in words:
        told = joined(words, "or")
        yield _refused(path, place, f"invalid choice: one of {told}", f"write {told}")
    kind = flag.get("type")
    if kind in _TYPES and not (is_whole(value) if kind == "integer" else is_number(value)):
        yield _refused(path, place, f"{_TYPES[kind]} is read", f"write {_TYPES[kind]}")
    if kind == "string" and value is True:
        yield _refused(path, place, "expected one argument", "write its value behind it")
    if kind == "boolean" and value is not True:
        yield _refused(path, place, "it takes no value: unrecognized arguments", "remove the value")
    yield from _list(path, place, flag)


def _list(path: str, place: Place, flag: Mapping[str, Any]) -> Iterator[Finding]:
    count = next((each["minItems"] for each in flag.get("anyOf", ()) if "minItems" in each), None)
    given = len(place.node.items or ()) or 1
    if count is not None and given != count:
        yield _refused(path, place, f"expected {count} arguments", f"write {count} numbers")


def _refused(path: str, place: Place, why: str, help: str) -> Finding:
    return Finding(
        f"--{path} does not take this value", (place.label("refused"),), (f"argparse: {why}",), help
    )


def _missing(document: Document) -> Iterator[Finding]:
    """A required flag is missing, in a command whose words are all known."""
    first = next(iter(document.found.values()), None)
    if first is None or document.unknown:
        return
    for flag, what in _OF_PROMPTS if document.kind == _OF_REWARDS else _OF_TEXTS:
        others = (flag, f"{OF_REWARDS}{flag.rpartition('.')[2]}")
        if not any(document.get(each) for each in others):
            yield Finding(
                f"no flag names {what}",
                (first.key_label("the first of these flags"),),
                (f"--{flag} is none by default, and nothing is loaded by that name",),
                f"write --{flag}",
                consequence="init",
            )


_MICRO, _BATCH = "train.micro_batch_size", "train.batch_size"


def _shares(run: LintContext, document: Document) -> Iterator[Finding]:
    """A global batch that does not divide into micro batches of all processes."""
    world, micro = run.value("parallel.world"), document.value(_MICRO, 8)
    batch = document.value(_BATCH, 128)
    at = document.get(_BATCH) or document.get(_MICRO)
    if at is None or document.hides(_MICRO, _BATCH):
        return
    if not (is_whole(world) and is_whole(micro) and is_whole(batch)) or world * micro < 1:
        return
    shared = batch
    for key in ("ds.ring_attn_size", "ds.tensor_parallel_size"):
        width = document.value(key, 1)
        if document.hides(key) or not is_whole(width):
            return
        shared *= width
    if shared % (world * micro):
        yield Finding(
            f"a batch of {batch} has no equal parts for {world} processes of {micro}",
            (at.label("refused"),),
            ("DeepSpeed's assertion on the batch fails: train_batch_size is no product",),
            f"write a multiple of {world * micro} as --{_BATCH}",
            consequence="init",
        )
