"""What the requested targets need: pins that hold unless the spec sets something else."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from tunec.compiler.analyses.counting import TRAINER, Counting
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.facts import Facts, Need, ResolvedModel
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.ir.ledger import Definition, Ledger, Origin, Rank
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.ir.values import show
from tunec.compiler.releases import ANY, parsed
from tunec.compiler.target import Target
from tunec.schemas.caches import BoundedCache
from tunec.schemas.frozen import replace
from tunec.schemas.models.known_since import known_since
from tunec.schemas.source import Path, dotted
from tunec.schemas.spec import Spec

_MODELS: Final = "transformers"
"""The distribution that has the classes of models."""

Asked = tuple[Target, Version]
"""A requested target and its version."""

Resolve = Callable[[str, Mapping[str, str]], Asked]
"""The target and version that a name means, given the installed versions."""


def together(
    resolve: Resolve, names: Sequence[str], software: Mapping[str, str]
) -> tuple[Asked, ...]:
    """Resolve targets by name for one run, which has one release of each program.

    A release in one name also holds for the other targets. If no release is given, it is the one
    that a requested trainer installs.
    """
    versioned = [resolve(name, software) for name in names if "@" in name]
    named = {target.package: str(version) for target, version in reversed(versioned)}
    asked = tuple(resolve(name, {**software, **named}) for name in names)
    brings = _brought_for(asked) if len(asked) > 1 else {}
    if not brings:
        return asked
    return tuple(resolve(name, {**brings, **software, **named}) for name in names)


def _brought_for(asked: Sequence[Asked]) -> dict[str, str]:
    """The releases of requested programs that the requested trainers install."""
    every = {id(target): target.companions(version) for target, version in asked}
    trainers = [
        target
        for target, _ in asked
        if not any(target.package in every[id(other)] for other, _ in asked)
    ]
    brings = {n: each for target in reversed(trainers) for n, each in every[id(target)].items()}
    return {
        target.package: brings[target.package] for target, _ in asked if target.package in brings
    }


_STATED: Final[Mapping[str, tuple[Path, Callable[[Spec], Any]]]] = {
    "attention.implementation": (("attention",), lambda spec: spec.attention),
    "batch.global": (("batch", "global"), lambda spec: spec.batch.global_),
    "launch.launcher": (("launcher",), lambda spec: spec.launcher),
    "optimizer.name": (("train", "optimizer"), lambda spec: spec.train.optimizer.name),
    "parallel.engine": (("engine",), lambda spec: spec.engine),
    "precision.compute": (("precision",), lambda spec: spec.precision.compute),
    "schedule.kind": (("train", "schedule"), lambda spec: spec.train.schedule),
}
"""Slots that a field of the spec sets directly: the field, and its value."""


def requirements(asked: Iterable[Asked]) -> list[Definition]:
    """The pins of the requested targets."""
    return [
        _pin(target, path, value) for target, _ in asked for path, value in target.requires.items()
    ]


def needs(asked: Sequence[Asked]) -> tuple[Need, ...]:
    """The pins that the requested targets set once they know the spec, or more of the plan."""
    plain = _without_launcher(asked)
    return (
        *(Need(partial(_needed, target, target.needs)) for target, _ in asked if target.needs),
        *(Need(partial(_needed, target, _starts_plainly), "parallel") for target, _ in plain),
        *(
            Need(partial(_needed, target, _starts_without_rank), "parallel")
            for target, _ in asked
            if target.heeds_launcher
        ),
    )


def preferences(asked: Sequence[Asked]) -> tuple[Need, ...]:
    """The pins that are given up if no plan comes of them."""
    return tuple(
        Need(partial(_preferred, target, version)) for target, version in asked if target.prefers
    )


def _preferred(target: Target, version: Version, spec: Spec, draft: Draft) -> list[Definition]:
    best = target.prefers(spec, draft, version) if target.prefers else {}
    return [_pin(target, path, value, "does more by it") for path, value in best.items()]


def imports(asked: Iterable[Asked]) -> tuple[Callable[[Draft], Iterable[str]], ...]:
    """The further packages that the requested targets' programs import for a plan."""
    return tuple(partial(_imported, target, version) for target, version in asked)


def _imported(target: Target, version: Version, draft: Draft) -> Iterable[str]:
    return target.imports(draft, version)


def releases(
    asked: Sequence[Asked], versions: Mapping[str, str], model: ResolvedModel
) -> Mapping[str, str]:
    """The release of each package for which the requested targets' files are written.

    A release that one target installs holds for the others too, since they share a run. One that
    does not have the model's family yet, or does not read its config, gives way to the last that
    the target takes. A malformed version is ignored here; `emit.unsupported` reports it.
    """
    since = tuple(filter(None, (known_since(model.architecture.family), model.read_since)))
    return _RELEASES.of((asked, versions), since, partial(_releases, asked, versions, since))


_RELEASES: Final = BoundedCache[Mapping[str, str]](
    "compiler.requirements.releases", 64, lasting=True
)


def _releases(
    asked: Sequence[Asked], versions: Mapping[str, str], since: Sequence[str]
) -> dict[str, str]:
    every = [(target, version, _companions(target, version, since)) for target, version in asked]
    beside = {name: each for _, _, companions in every for name, each in companions.items()}
    found = {**beside}
    for target, version, companions in every:
        with suppress(InvalidVersion):
            dialect = target.dialect(version, {**beside, **companions, **versions})
            found |= {name: str(each) for name, each in dialect.items() if name}
    return found


def _companions(target: Target, version: Version, since: Sequence[str]) -> Mapping[str, str]:
    """The releases beside a target's, of which transformers loads the model as it is if it can."""
    usual, least = target.companions(version), max(map(parsed, since), default=None)
    if least is None or _MODELS not in usual or parsed(usual[_MODELS]) >= least:
        return usual
    taken = target.installs(version).get(_MODELS, ANY)
    last = dict(taken.bounds).get("<=")
    return usual if last is None or parsed(last) < least else {**usual, _MODELS: last}


_UNDERNEATH: Final = ("accelerate", "deepspeed", _MODELS)
"""Packages below the trainers, which choose their releases: the accounts follow those releases."""


def brought(releases: Mapping[str, str]) -> dict[str, str]:
    """The releases that the requested trainers install, if no others are given."""
    return {name: releases[name] for name in _UNDERNEATH if name in releases}


def take_fsdp(asked: Sequence[Asked]) -> bool:
    """Whether the search may choose FSDP without a request."""
    return bool(asked) and all(target.takes_fsdp for target, _ in asked)


_LAUNCHER_FILE: Final = "accelerate.yaml"


def _without_launcher(asked: Sequence[Asked]) -> Iterator[Asked]:
    """The targets that heed a launcher's file, if no requested target writes that file."""
    written = {file.name for target, _ in asked for file in target.files}
    if _LAUNCHER_FILE not in written:
        yield from (each for each in asked if each[0].heeds_launcher)


def _starts_plainly(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """torchrun, which passes nothing of FSDP to the trainer: the trainer's file must set it."""
    if spec.launcher is not None:
        return {}
    plain = draft.parallel.engine == "fsdp" and draft.parallel.sequence == 1
    return {"launch.launcher": "torchrun"} if plain else {}


def _starts_without_rank(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """torchrun for the user's own script, which reads `sys.argv[1]` or parses its own flags.

    DeepSpeed's launcher puts `--local_rank=N` ahead of a script's arguments (deepspeed 0.14.5 to
    0.19.8 launcher/launch.py). What such a trainer is built on takes its rank from the environment
    (accelerate 0.30.1 to 1.15.0 state.py `PartialState`).
    """
    own = spec.launcher is None and spec.run.script is not None
    return {"launch.launcher": "torchrun"} if own and draft.parallel.engine == "deepspeed" else {}


def counting(asked: Sequence[Asked], versions: Mapping[str, str], spec: Spec) -> Counting:
    """How the first requested trainer counts its steps; an engine beside it does not count."""
    engines = {name for target, _ in asked for name in target.beside}
    for target, version in sorted(asked, key=lambda each: each[0].package in engines):
        if target.counting is not None:
            try:
                dialect = target.dialect(version, versions)
                return target.counting(dialect, spec.extra.get(target.name, {}))
            except InvalidVersion:
                break  # which is reported where versions are checked
    return TRAINER


def _needed(
    target: Target, needs: Callable[[Spec, Draft], Mapping[str, Any]], spec: Spec, draft: Draft
) -> list[Definition]:
    return [_pin(target, path, value) for path, value in needs(spec, draft).items()]


def _pin(target: Target, path: str, value: Any, why: str = "needs it") -> Definition:
    reason, rests = f"target {target.name} {why}", (Origin("target", target.name),)
    return Definition(path, value, Rank.PIN, "target", reason, rests)


def entry_of(asked: Iterable[Asked], plan: Plan, software: Mapping[str, str]) -> Definition | None:
    """The program that starts if no script is named: that of the first requested trainer.

    A trainer that starts in its own folder only needs this entry if another target starts it.
    """
    asked = tuple(asked)
    others = any(start.needs_script for target, _ in asked for start in target.starts)
    for target, version in asked:
        by_itself = any(start.at_home for start in target.starts)
        if target.entry is not None and (others or not by_itself):
            words = target.entry(plan, target.dialect(version, software))
            value, rests = shlex.join(words), (Origin("target", target.name),)
            reason = f"what starts {target.name}"
            return Definition("launch.script", value, Rank.PIN, "target", reason, rests)
    return None


def torn(asked: Sequence[Asked]) -> Iterator[Diagnostic]:
    """Report two releases of one program in one run."""
    if len(asked) < 2:
        return
    releases: dict[str, dict[Version, str]] = {}
    for target, version in asked:
        releases.setdefault(target.package, {}).setdefault(version, target.name)
    for package, versions in releases.items():
        if len(versions) > 1:
            told = joined((f"{v} ({name})" for v, name in sorted(versions.items())), "and")
            yield _only_one(package, f"{told} are requested", "release")
    for one, other in combinations(asked, 2):
        refused = next(_excluded(one, other), None)
        if refused is not None:
            takes = (f"{t.name} {v} takes {t.installs(v)[refused]}" for t, v in (one, other))
            yield _only_one(refused, joined(takes, "and"), "trainer")


def _excluded(one: Asked, other: Asked) -> Iterator[str]:
    """Packages for which each of two trainers refuses the release that the other installs."""
    (target, version), (beside, later) = one, other
    ranges, ranges_beside = target.installs(version), beside.installs(later)
    mine, theirs = target.companions(version), beside.companions(later)
    for package in sorted({*ranges} & {*ranges_beside} & {*mine} & {*theirs}):
        is_refused = not ranges[package].contains(theirs[package])
        if is_refused and not ranges_beside[package].contains(mine[package]):
            yield package


def _only_one(package: str, but: str, each: str) -> Diagnostic:
    return Diagnostic(
        "E0909",
        "error",
        f"a run can have only one {package}, but {but}",
        (Label("requested here", path="targets"),),
        ("the release determines what a run can do and which keys it takes",),
        help=f"compile for each {each} separately, to its own directory",
    )


def contradicted(loaded: Loaded, asked: Sequence[Asked]) -> Iterator[Diagnostic]:
    """Report fields of the spec that contradict what a target needs."""
    if loaded.spec is None:
        return
    for target, _ in asked:
        for slot, needed in target.requires.items():
            path, value_of = _STATED.get(slot, ((), lambda _: None))
            stated = value_of(loaded.spec) if path and path in loaded.spans else None
            if stated is not None and stated != needed:
                yield Diagnostic(
                    "E0903",
                    "error",
                    f"{target.name} needs {slot} {show(slot, needed)}, but the spec requests "
                    f"{show(slot, stated)}",
                    (Label("requested here", path=dotted(path)),),
                    help=f"request {show(slot, needed)}, or compile to another target",
                )


def with_entry(
    plan: Plan, ledger: Ledger, facts: Facts, asked: Sequence[Asked]
) -> tuple[Plan, Ledger]:
    """The plan with the requested trainer's program, unless the spec names a script."""
    if facts.spec.run.script is not None or "launch.script" in facts.pins:
        return plan, ledger
    found = entry_of(asked, plan, facts.versions)
    if found is None:
        return plan, ledger
    return plan.with_values({found.slot: found.value}), ledger.add((found,))


_LOST: Final = "E0901"
"""The code of a value that a target cannot express."""


def compiled_apart(
    found: Sequence[Diagnostic], asked: Sequence[Asked], alone: Iterable[bool]
) -> tuple[Diagnostic, ...]:
    """The diagnostics, with a note to compile the targets separately if that would work.

    `alone`: whether each target's files can be written if no other target is requested.
    """
    errors = [each for each in found if each.severity == "error"]
    if len(asked) < 2 or any(each.id != _LOST for each in errors):
        return tuple(found)
    if not errors or not all(alone):
        return tuple(found)
    names = joined((f"`--target {target.name}`" for target, _ in asked), "and")
    note = f"each of these targets can be written alone: compile {names} apart"
    return tuple(
        replace(each, notes=(*each.notes, note)) if each in errors else each for each in found
    )
