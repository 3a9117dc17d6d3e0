"""Fields that a release does not have."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tunec.compiler.consumers.moved_keys import former_name, moved_key
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.key_releases import came_later, former, no_more, not_yet
from tunec.compiler.lints.facts.known_keys import (
    CLASSES,
    around,
    consequence_of_unknown,
    fields_of,
    having,
    keys_ever,
    may_be_dropped,
    package_of,
    releases_of,
)
from tunec.compiler.lints.facts.training_loop import is_started_by_trl
from tunec.compiler.lints.kinds import OF_SCRIPTS, own_keys
from tunec.compiler.lints.kinds import fields_of as class_fields
from tunec.compiler.lints.rule import Consequence, Finding, rule
from tunec.schemas.frozen import replace

_ELSEWHERE: Final = frozenset({"trust_remote_code", "activation_offloading", "loss_type"})
"""Fields that other classes of the same file have too: trl 0.8.6 to 1.16.0 trainer/model_config.py
and the script arguments."""
_OWN: Final = 3
"""The number of own flags from which a script counts as not TRL's."""
_KINDS: Final = (*CLASSES, "llamafactory", "axolotl", "accelerate")
_REFUSED: Final = "unsloth_"
"""Prefix of the keys that Axolotl refuses by name: axolotl 0.17.0 to 0.19.0
utils/schemas/validation.py `check_deprecated_unsloth_fields` (`value-refused`)."""


@rule(
    "error",
    "parse",
    consumers=("trl", "llamafactory", "axolotl", "accelerate"),
    reads=tuple(f"{kind}:*" for kind in _KINDS),
    unless="declared",
)
def field_of_another_release(run: LintContext) -> Iterator[Finding]:
    """A key of TRL, LLaMA-Factory, Axolotl or accelerate that the release in use does not have."""
    for kind in _KINDS:
        for document in run.of(kind):
            here = around(run, kind)
            if _is_of_another_script(document):
                continue
            if here and not document.is_view:
                yield from _reported(run, document, list(_of_document(run, document, here)))
            if kind in CLASSES and run.runs(_WITHOUT_TORCH):
                yield from _of_the_model(run, document)


def _reported(run: LintContext, document: Document, found: list[Finding]) -> Iterator[Finding]:
    """Each key's finding if the release is known, else one finding for all of the keys."""
    kind = document.kind
    if run.release(package_of(kind)).is_known:
        yield from found
        return
    doubtful: dict[str, tuple[Place, tuple[str, ...]]] = {}
    for each in found:
        path = each.labels[0].path
        place, known = document.named.get(path), having(kind, path, releases_of(kind))
        if run.own.declares(path) or run.own.takes(path):
            continue
        if place is not None and known and each.severity is None:
            doubtful[path] = place, known
        else:
            yield each
    if doubtful:
        yield perhaps(package_of(kind), doubtful, consequence_of_unknown(run, document))


def _of_document(run: LintContext, document: Document, here: tuple[str, ...]) -> Iterator[Finding]:
    kind = document.kind
    for path, place in document.named.items():
        is_off = place.value is None or place.value is False
        if "." in path or path in _ELSEWHERE:
            continue
        if kind == "axolotl" and (is_off or path.startswith(_REFUSED)):
            continue
        if path in OF_UNSLOTH and document.format == "python" and is_patched(document.text):
            continue
        if not (having(kind, path, here) or _is_of_trainer(run, kind, path)):
            yield from _not_here(run, place)
        elif came := came_later(run, kind, path) or not_yet(run, kind, path):
            yield _too_new(run, place, came)
        elif gone := no_more(run, kind, path):
            yield _too_old(run, place, gone)


OF_UNSLOTH: Final = frozenset(
    {"max_seq_length", "vllm_sampling_params", "unsloth_num_chunks", "unsloth_grpo_mini_batch"}
    | {"unsloth_logit_chunk_multiplier"}
)
_UNSLOTH: Final = re.compile(r"(?m)^\s*(?:from|import) unsloth\b")
"""unsloth 2025.2 to 2026.10 models/rl.py `_patch_trl_rl_trainers`: the configs that replace TRL's
have the fields in every release."""


_TRL: Final = re.compile(r"(?m)^\s*from trl import\b")


def is_patched(text: str) -> bool:
    """Whether Unsloth is imported before TRL's names; imported later, it does not replace them."""
    unsloth, trl = _UNSLOTH.search(text), _TRL.search(text)
    return unsloth is not None and (trl is None or unsloth.start() < trl.start())


def _too_new(run: LintContext, place: Place, came: str) -> Finding:
    """Report a key that was added between the known releases, after the release in use."""
    kind, path = place.document.kind, place.path
    consequence = consequence_of_unknown(run, place.document)
    moved = former_name(package_of(kind), path)
    new = moved.old if moved is not None else None
    return Finding(
        f"{run.release(package_of(kind)).in_words} has no key `{path}`",
        (place.key_label("not in this release"),),
        (
            f"it came with {came}",
            _DROPPED if consequence == "silent" else "a key that no class has is refused",
        ),
        f"write `{new}`, or use {came}" if new else f"use {came} or later, or remove it",
        consequence=consequence,
    )


def _too_old(run: LintContext, place: Place, gone: str) -> Finding:
    """Report a key that was removed between the known releases, before the release in use."""
    kind, path = place.document.kind, place.path
    found = _finding(run, kind, path, place, releases_of(kind)[:1])
    went = f"it went with {package_of(kind)} {gone}"
    if found.consequence != "silent":
        return replace(found, notes=(went, *found.notes[1:]))
    is_default = place.value in ("auto", None, False)
    return replace(found, notes=(went, _DROPPED), severity="note" if is_default else "warning")


def _not_here(run: LintContext, place: Place) -> Iterator[Finding]:
    """Report a key that the class does not have in this release, if the key's owner is known."""
    kind, path = place.document.kind, place.path
    known = having(kind, path, releases_of(kind))
    if known:
        yield _finding(run, kind, path, place, known)
    elif found := former(kind, path):
        yield from _of_before(run, place, *found)
    elif kind in CLASSES and place.document.format != "python" and _is_trls(run, place.document):
        # in a call `argument-of-no-release` reports it
        yield from _of_another_method(run, place)


def _of_before(run: LintContext, place: Place, since: str, new: str | None) -> Iterator[Finding]:
    """Report a key of the earlier classes, which read a recipe of the handbook's own."""
    runs = run.runs(since)
    if runs or (runs is None and place.document.kind == "ppo"):
        yield Finding(
            f"{place.document.kind} has no key `{place.path}`",
            (place.key_label("of the classes that were before"),),
            ("a key that no class of the script has is refused",),
            f"write `{new}`" if new else "remove it",
            consequence=consequence_of_unknown(run, place.document),
            severity=None if runs else "warning",
        )


def _of_another_method(run: LintContext, place: Place) -> Iterator[Finding]:
    """Report a key that only another method's class has, and that no class of this script takes."""
    owners = [each for each in CLASSES if place.path in keys_ever(each)]
    if not owners or place.path in _SHARED:
        return
    consequence = consequence_of_unknown(run, place.document)
    is_dropped = consequence == "silent" or may_be_dropped(run, place.document)
    why = (
        _DROPPED if consequence == "silent" else "a key that no class of the script has is refused"
    )
    yield Finding(
        f"{place.document.kind} has no key `{place.path}`",
        (place.key_label("of another method"),),
        (f"it is a key of {', '.join(owners)}", why),
        "remove it",
        severity="note" if is_dropped else "warning",
        consequence=consequence,
    )


def _is_trls(run: LintContext, document: Document) -> bool:
    return document.format != "shell" or is_started_by_trl(run, document)


_SHARED: Final = frozenset({"reward_model_path", "sft_model_path", "missing_eos_penalty"})
"""Keys of PPO and RLOO, whose releases before 0.20 are not read here."""
_WITHOUT_TORCH: Final = "trl>=0.27"


def _of_the_model(run: LintContext, document: Document) -> Iterator[Finding]:
    """Report `torch_dtype` of ModelConfig, which TRL's scripts read from the same file."""
    at = document.get("torch_dtype")
    if at is None or document.is_view or not _is_trls(run, document):
        return
    is_free = document.get("dtype") is None
    yield Finding(
        f"{run.release('trl')} has no key `torch_dtype`",
        (at.key_label("not in this release"),),
        ("0.25 and 0.26 have both names", "a key that no class of the script has is refused"),
        "write `dtype`" if is_free else "remove it",
        Fix((at.renamed("dtype"),), "safe") if is_free else None,
        consequence=consequence_of_unknown(run, document),
    )


def _is_of_another_script(document: Document) -> bool:
    """Whether several keys are unknown: InternVL and Firefly have their own max_seq_length.

    A file has more keys of its program than a command has flags, so that a file also counts as
    TRL's if it has a field that only TRL's class has.
    """
    if document.kind not in CLASSES:
        return False
    keys = frozenset(key for key in document.found if "." not in key)
    if len(own_keys(document.target, document.file, keys)) < _OWN:
        return False
    of_trl = class_fields(document.kind) - class_fields("hf") - OF_SCRIPTS
    return document.format == "shell" or not keys & of_trl


def _is_of_trainer(run: LintContext, kind: str, path: str) -> bool:
    """Whether a key is one of the trainer's fields, which TRL's classes inherit from transformers.

    LLaMA-Factory's classes inherit them too: `key-of-another-release` reports their keys if the
    release of transformers is named.
    """
    is_beside = kind == "llamafactory" and run.release("transformers").is_named
    if kind not in CLASSES and not is_beside:
        return False
    return any(path in fields_of("training_arguments", each) for each in ("4.40.2", "5.23.0"))


def _finding(
    run: LintContext, kind: str, path: str, place: Place, known: tuple[str, ...]
) -> Finding:
    release = run.release(package_of(kind))
    consequence = consequence_of_unknown(run, place.document)
    new, is_same = _other_name(kind, path)
    if new is not None and (
        not having(kind, new, around(run, kind)) or new in place.document.found
    ):
        new = None
    return Finding(
        f"{release.in_words} has no key `{path}`",
        (place.key_label("not in this release"),),
        (
            f"of the releases that were read, {known[0]} to {known[-1]} have it",
            _DROPPED if kind == "axolotl" else "a key that no class of the script has is refused",
        ),
        f"write `{new}`" if new else "remove it",
        Fix((place.renamed(new),), "unsafe" if consequence == "silent" else "safe")
        if new and is_same
        else None,
        consequence=consequence,
    )


def _other_name(kind: str, path: str) -> tuple[str | None, bool]:
    """A key's name in other releases, and whether nothing else differs."""
    for package in (package_of(kind), "transformers"):
        if moved := moved_key(package, path):
            return moved.new or None, moved.is_same
        if moved := former_name(package, path):
            return moved.old, moved.is_same
    return None, False


_DROPPED: Final = "it is silently dropped"


_MOST_TOLD: Final = 6
_MOST_NAMED: Final = 12

Doubtful = Mapping[str, tuple[Place, Sequence[str]]]
"""The place of each key, and the known releases that have the key, oldest first."""


def perhaps(package: str, doubtful: Doubtful, consequence: Consequence) -> Finding:
    """One finding for several keys: a note, or a warning if no known release has all of them."""
    places = [place for place, _ in doubtful.values()]
    names = _listed([f"`{path}`" for path in doubtful], _MOST_NAMED)
    told = [f"{path}: {package} {_span(having)}" for path, (_, having) in doubtful.items()]
    common = frozenset[str].intersection(*(frozenset(having) for _, having in doubtful.values()))
    message = (
        f"not every release of {package} has {names}, and nothing here says which one runs"
        if common
        else f"no known release of {package} has all of {names}"
    )
    return Finding(
        message,
        tuple(each.key_label("", primary=each is places[0]) for each in places),
        (*told[:_MOST_TOLD], *_more(told)),
        f"require a release of {package} in a file beside this one, such as requirements.txt, or "
        f"name it: --software {package}=VERSION",
        certain=not common,
        severity=None if common else "warning",
        consequence=consequence,
    )


def _span(having: Sequence[str]) -> str:
    if not having:
        return "none"
    return having[0] if len(having) == 1 else f"{having[0]} to {having[-1]}"


def _more(told: Sequence[str]) -> tuple[str, ...]:
    return (f"and {len(told) - _MOST_TOLD} more",) if len(told) > _MOST_TOLD else ()


def _listed(names: Sequence[str], most: int) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
