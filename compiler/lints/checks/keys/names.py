"""Keys that no reader knows under that name or in that release."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Final

from packaging.version import Version

from tunec.compiler.consumers.moved_keys import moved_key
from tunec.compiler.consumers.schemas import known_releases
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted
from tunec.compiler.lints.checks.keys.fields import Doubtful, perhaps
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.effective import default_of
from tunec.compiler.lints.facts.known_keys import (
    BF16_SCALING,
    CLASSES,
    DEEPSPEED_RELEASES,
    TOOLS,
    WHOLE_FLAGS,
    around,
    consequence_of_unknown,
    fields_of,
    foreign_keys,
    homes_of,
    is_begun,
    is_whole,
    keys_at,
    keys_ever,
    known_at,
    known_in_other_releases,
    may_be_dropped,
    package_of,
    script_keys,
)
from tunec.compiler.lints.rule import Consequence, Finding, rule
from tunec.compiler.lints.schemas import Fault, faults, unknown_to
from tunec.schemas.frozen import replace

_LIKE: Final = 0.88
"""How similar a name must be to count as a misspelling of another, as in `known`."""


@rule(
    "error",
    "parse",
    consumers=("llamafactory", "axolotl", "accelerate", "trl"),
    reads=tuple(f"{kind}:*" for kind in (*TOOLS, *CLASSES)),
    unless="declared",
)
def misspelt_key(run: LintContext) -> Iterator[Finding]:
    """A key that is nearly one of the tool's keys."""
    for kind in (*TOOLS, *CLASSES):
        for document in run.of(kind):
            keys = _keys_here(run, kind) | _of_script(document)
            free = keys.difference(document.found)
            for path, place in document.found.items():
                if "." in path or document.is_view or _is_known(kind, path):
                    continue
                is_former = path in _FORMER and (
                    may_be_dropped(run, document)
                    or consequence_of_unknown(run, document) == "silent"
                )
                is_whole = kind in WHOLE_FLAGS or not is_begun(document, path, keys_ever(kind))
                if is_former or not is_whole:
                    continue
                near = _near(path, free) or _near(path, keys)
                if near is not None:
                    yield _misspelt(run, place, near)


def _keys_here(run: LintContext, kind: str) -> frozenset[str]:
    return frozenset[str]().union(*(keys_at(kind, each) for each in around(run, kind)))


def _is_known(kind: str, path: str) -> bool:
    if path in keys_ever(kind):
        return True
    return kind in CLASSES and (path in script_keys() or path in _of_trainer())


_FORMER: Final = frozenset({"dataset_configs", "dataset_splits", "dataset_mixer"})
"""Keys of huggingface/alignment-handbook's recipes; if a release drops them, nothing is lost."""


def _of_trainer() -> frozenset[str]:
    return fields_of("training_arguments", "4.40.2") | fields_of("training_arguments", "5.23.0")


def _of_script(document: Document) -> frozenset[str]:
    """Other keys of a recipe for TRL's scripts; the handbook's recipes had `dataset_configs`."""
    is_recipe = document.kind in CLASSES and document.format not in ("shell", "python")
    is_own = document.get("dataset_mixer") is not None
    return script_keys() if is_recipe and not is_own else frozenset()


def _near(path: str, keys: frozenset[str]) -> str | None:
    for each in nearest(path, keys)[:1]:
        if SequenceMatcher(None, path, each).ratio() >= _LIKE:
            return each
    return None


def is_near(name: str, keys: frozenset[str]) -> bool:
    """Whether `misspelt_key` reports a name as a misspelling of one of these keys."""
    return _near(name, keys) is not None


def _misspelt(run: LintContext, place: Place, near: str) -> Finding:
    consequence = consequence_of_unknown(run, place.document)
    silent, is_free = consequence == "silent", near not in place.document.found
    usual = default_of(run, place.document.kind, near).value
    is_idle = silent and place.value in (None, False) and not usual
    is_former = near.endswith(f"_{place.path}")  # which a release puts a word in front of
    is_idle = is_idle or (is_former and not run.release(package_of(place.document.kind)).is_known)
    return Finding(
        f"{place.document.kind} has no key `{place.path}`",
        (place.key_label("ignored" if silent else "refused"),),
        ("it is silently dropped",) if silent else (),
        f"did you mean `{near}`?" if is_free else f"remove it: `{near}` is there",
        Fix((place.renamed(near) if is_free else place.removed(),), "unsafe"),
        consequence=consequence,
        severity="note" if is_idle else "warning" if may_be_dropped(run, place.document) else None,
    )


_OF_ENGINES: Final = ("msamp",)
"""Blocks of engines derived from DeepSpeed: accelerate 1.4.0 to 1.15.0 utils/dataclasses.py
`DeepSpeedPlugin` writes it for MS-AMP, whose `msamp.deepspeed.initialize` reads it."""


@rule("error", "silent", consumers=("deepspeed", "transformers"), reads=("deepspeed:*", "hf:*"))
def unknown_key(run: LintContext) -> Iterator[Finding]:
    """A key that its reader does not know."""
    for document in run.of("deepspeed"):
        if is_whole(document):
            for fault in faults(run, document):
                if fault.what == "unknown" and not _is_told_elsewhere(run, fault):
                    yield _in_deepspeed(run, fault)
    for document in run.of("hf"):
        if not document.is_partial:
            for place, near in foreign_keys(run, document):
                if not _is_taken(run, place):
                    yield _near_miss(place, near)


def _is_taken(run: LintContext, place: Place) -> bool:
    """Whether a script's own parser has the flag, or takes it as an abbreviation of another."""
    name, is_flag = place.path.removeprefix("--"), place.document.format == "shell"
    is_short = is_begun(place.document, name, _of_trainer())
    return is_short or run.own.declares(name, as_flag=is_flag)


def _is_told_elsewhere(run: LintContext, fault: Fault) -> bool:
    name = fault.path.rpartition(".")[2]
    return (
        fault.path in (*BF16_SCALING, *_OF_ENGINES)
        or fault.path.startswith("optimizer.params.")  # optimizer-parameter-refused
        or name.startswith(("_", "//", "#"))
        or run.own.takes(name)  # by a script, or a DeepSpeed of its own
        or bool(homes_of(run, fault.path))
        or bool(known_in_other_releases(run, "deepspeed", fault.path))
    )


_OF_EXAMPLES: Final = ("comms_config", "monitor_config")  # LLaMA-Factory 0.9.4, ds_z3_fp8_config


def _in_deepspeed(run: LintContext, fault: Fault) -> Finding:
    holder, _, name = fault.path.rpartition(".")
    near = nearest(name, known_at(fault.schema))
    where = f" in {holder}" if holder else ""
    # a block drops "auto" before it looks at its keys
    is_dropped = fault.place.value == "auto" and not holder.startswith("scheduler")
    is_refused = fault.is_refused and not is_dropped
    is_idle = fault.place.value is False or fault.path in _OF_EXAMPLES
    return Finding(
        f"DeepSpeed knows no key `{name}`{where}",
        (fault.place.key_label("refused" if is_refused else "ignored"),),
        (f"by the keys of {run.release('deepspeed')}",),
        did_you_mean(near) or "remove it",
        Fix((fault.place.renamed(near[0]),), "unsafe") if len(near) == 1 else None,
        severity=None if is_refused else "note" if is_idle else None if near else "warning",
        consequence="init" if is_refused else "silent",
    )


def _near_miss(place: Place, near: str) -> Finding:
    return Finding(
        f"TrainingArguments has no field `{place.path}`",
        (place.key_label("no field"),),
        (),
        f"did you mean `{near}`?",
        Fix((place.renamed(near),), "unsafe"),
        consequence="parse",
    )


_GONE: Final = {
    "sharded_ddp": "write fsdp, or deepspeed",
    "evaluate_during_training": "write eval_strategy: steps",
}
"""Fields that no release since 4.40 has: huggingface/transformers#25702, #9206."""
_SINCE_0_10: Final = tuple(
    f"zero_optimization.{key}"
    for key in ("zero_hpz_partition_size", *("zero_quantized_weights", "zero_quantized_gradients"))
)
"""deepspeedai/DeepSpeed#3827, OpenRLHF/OpenRLHF#63: extra fields not permitted in 0.9.5."""
_REFUSED: Final = (
    *("nebula", "compression_training", "amp", "quantize_training", "sparse_gradients"),
    *("eigenvalue", "sparse_attention", "elasticity", "graph_harvesting", "curriculum_learning"),
    *("progressive_layer_drop", "zero_optimization.mics_shard_size"),
    *("zero_optimization.mics_hierarchical_params_gather", "zero_optimization.zeropp_loco_param"),
)
"""deepspeed 0.19.8 runtime/config.py `_REMOVED_TOP_LEVEL_CONFIG_KEYS`, `_REMOVED_ZERO_CONFIG_KEYS`:
refused by name, while other unknown keys at the top level are ignored."""
_OWN: Final = ("overwrite_output_dir",)
"""Fields that TrainingArguments no longer has but LLaMA-Factory 0.9.4 and later has itself:
hparams/training_args.py."""


@rule(
    "error",
    "parse",
    consumers=("transformers", "deepspeed"),
    reads=("trainer:*", "deepspeed:*"),
    unless="declared",
)
def key_of_another_release(run: LintContext) -> Iterator[Finding]:
    """A key that the release in use does not have, although another release has it."""
    beside = ("llamafactory",) if run.release("transformers").is_named else ()
    for document in run.of("hf", *TRL, *beside):
        kept = _OWN if document.kind in beside else ()
        tops = ((path, place) for path, place in document.named.items() if "." not in path)
        fields = {} if document.is_partial else {p: each for p, each in tops if p not in kept}
        for path, place in fields.items():
            yield from _field(run, path, place)
        if not run.release("transformers").is_known:
            yield from _perhaps("transformers", _doubtful(run, document, fields), "parse")
    for document in run.of("deepspeed"):
        if not is_whole(document):
            continue
        yield from _not_yet(run, document)
        found = list(_of_other_releases(run, document))
        if run.release("deepspeed").is_known:
            yield from (finding for _, _, finding in found)
        else:
            yield from _of_unknown_release(run, document, found)


Told = tuple[str, Place, Finding]


def _of_other_releases(run: LintContext, document: Document) -> Iterator[Told]:
    """Keys that the DeepSpeed release in use does not know, but other releases do."""
    for fault in faults(run, document):
        known = known_in_other_releases(run, "deepspeed", fault.path)
        if fault.what == "unknown" and known:
            path, place = fault.path, fault.place
            is_late = str(run.release("deepspeed").version) >= "0.19"
            is_refused = fault.is_refused or (path in _REFUSED and is_late)
            what: Consequence = "init" if is_refused else "silent"
            kind = document.value("scheduler.type") if path.startswith(_SCHEDULER) else None
            if isinstance(kind, str):
                yield path, place, _of_another_scheduler(kind, fault)
            else:
                yield path, place, _of_another_release(run, "deepspeed", path, place, known, what)


_SCHEDULER: Final = "scheduler.params."


def _of_another_scheduler(kind: str, fault: Fault) -> Finding:
    """The finding for a parameter of other classes of runtime/lr_schedules.py, in every release."""
    taken = sorted(fault.schema.get("properties", ()))
    is_shared = "warmup_min_ratio" in taken
    return Finding(
        f"{kind} takes no `{fault.path.removeprefix(_SCHEDULER)}`",
        (fault.place.key_label("TypeError: unexpected keyword argument"),),
        (f"it takes {quoted(taken)}",) if taken else (),
        "write warmup_min_ratio, a share of the optimizer's rate" if is_shared else "remove it",
        consequence="init",
    )


def _not_yet(run: LintContext, document: Document) -> Iterator[Finding]:
    """Report keys that are newer than a named release from before the known ones."""
    if run.runs("deepspeed<0.10") is True:
        for key in _SINCE_0_10:
            if (place := document.get(key)) is not None:
                yield Finding(
                    f"{run.release('deepspeed').in_words} has no key `{key}`",
                    (place.key_label("refused"),),
                    ("it came with 0.10.0",),
                    "use deepspeed 0.10 or newer, or remove it",
                    consequence="init",
                )


# ── where no release is known ────────────────────────────────────────────────────────────────────

_STEM: Final = "training_arguments"


def _of_unknown_release(
    run: LintContext, document: Document, found: Iterable[Told]
) -> Iterator[Finding]:
    """Report ds_config.json's keys that no release takes, and the doubtful ones in one finding."""
    unknown = {each: unknown_to(run, document, each) for each in DEEPSPEED_RELEASES}
    doubtful: dict[str, tuple[Place, tuple[str, ...]]] = {}
    refused = _refused_later(run, document)
    for path, place, finding in (*found, *((path, place, None) for path, place in refused)):
        having = tuple(each for each, lacking in unknown.items() if path not in lacking)
        having = tuple(each for each in having if each < "0.19" or path not in _REFUSED)
        if having:
            doubtful[path] = place, having
        elif finding is not None:
            yield replace(finding, severity="warning")
    if doubtful:
        is_refused = not doubtful.keys().isdisjoint(_REFUSED)
        yield perhaps("deepspeed", doubtful, "init" if is_refused else "silent")


def _refused_later(run: LintContext, document: Document) -> Iterator[tuple[str, Place]]:
    """Keys that the assumed release has, and that newer releases refuse by name."""
    if str(run.release("deepspeed").version) < "0.19":
        for key in _REFUSED:
            place = document.get(key)
            if place is not None and not (key == "amp" and place.value in (False, None)):
                yield key, place


def _doubtful(
    run: LintContext, document: Document, fields: Mapping[str, Place]
) -> dict[str, tuple[Place, tuple[str, ...]]]:
    """Fields that the assumed release or the newest one does not have.

    If no release has all of them: every field that is missing from some release.
    """
    *_, newest = known = known_releases(_STEM)
    taken = fields_of(_STEM, str(run.release("transformers").version))
    every = {path: tuple(e for e in known if path in fields_of(_STEM, e)) for path in fields}
    some = {path: having for path, having in every.items() if 0 < len(having) < len(known)}
    is_torn = bool(some) and not frozenset[str].intersection(*map(frozenset, some.values()))

    def is_doubtful(path: str) -> bool:
        is_gone = path in taken and path not in fields_of(_STEM, newest)
        is_foreign = bool(known_in_other_releases(run, "hf", path))
        return is_torn or is_foreign or (is_gone and not document.is_compiled)

    return {path: (fields[path], some[path]) for path in some if is_doubtful(path)}


def _perhaps(package: str, doubtful: Doubtful, consequence: Consequence) -> Iterator[Finding]:
    if doubtful:
        yield perhaps(package, doubtful, consequence)


def _field(run: LintContext, path: str, place: Place) -> Iterator[Finding]:
    known = known_in_other_releases(run, "hf", path)
    if path in _GONE and run.runs("transformers<4.35") is not True:
        yield Finding(
            f"transformers no longer has a key `{path}`",
            (place.key_label("refused"),),
            ("no release from 4.40 on has it",),
            _GONE[path],
            Fix((place.removed(),), "unsafe"),
        )
    elif known and run.release("transformers").is_known:
        yield _of_another_release(run, "transformers", path, place, known, "parse")


def _of_another_release(
    run: LintContext,
    package: str,
    path: str,
    place: Place,
    known: tuple[str, ...],
    consequence: Consequence,
) -> Finding:
    release = run.release(package)
    came = Version(known[-1]) < release.version
    moved = moved_key(package, path)
    how = moved.help if moved is not None else ""
    new = moved.new if moved is not None and not how else ""
    return Finding(
        f"{release.in_words} has no key `{path}`",
        (place.key_label("not in this release"),),
        (f"of the releases that were read, {known[0]} to {known[-1]} have it",),
        f"write `{new}`" if new else how or ("remove it" if came else "leave it out"),
        Fix((place.renamed(new),), "safe") if _is_safe(new) else None,
        consequence=consequence,
    )


def _is_safe(new: str) -> bool:
    """Whether renaming the key is enough; without devices `use_cpu` changes the run."""
    return bool(new) and "." not in new and new != "use_cpu"
