"""The whole flow on one screen: spec -> facts -> passes -> plan -> accounts -> artifacts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from tunec.compiler.analyses.measurements import as_ran
from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.analyses.time.account import TimeAccount, step_time
from tunec.compiler.bundle import (
    Emitting,
    Outset,
    as_seen,
    bundle,
    completed,
    enclosed,
    with_commands,
)
from tunec.compiler.chat_templates import missing_template
from tunec.compiler.data_columns import foreign_speakers, unread_columns, unseen_pictures
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label, has_errors
from tunec.compiler.emit import Emitted, emit
from tunec.compiler.facts import Facts
from tunec.compiler.frontend.load import Loaded, with_settings
from tunec.compiler.ir.invariants import breaches
from tunec.compiler.ir.ledger import Definition, Ledger, Rank
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.lints.emission import objections
from tunec.compiler.lints.index import unknown_allowances
from tunec.compiler.locate import locate, traced
from tunec.compiler.passes.contract import Outcome, Pass
from tunec.compiler.passes.fit.fit import GROUPS as FIT
from tunec.compiler.passes.fit.fit import problem_of
from tunec.compiler.passes.fit.search import Answer, search
from tunec.compiler.passes.pipeline import PIPELINE, STAGES
from tunec.compiler.passes.stage import Stage
from tunec.compiler.passthrough import unread
from tunec.compiler.rendering import header_of
from tunec.compiler.requirements import (
    Asked,
    brought,
    compiled_apart,
    contradicted,
    counting,
    imports,
    needs,
    preferences,
    releases,
    requirements,
    take_fsdp,
    torn,
    with_entry,
)
from tunec.compiler.resolve import Unresolved, resolve
from tunec.compiler.script_paths import lost_paths
from tunec.compiler.target import Artifact
from tunec.compiler.trained_tokens import every_token_counts
from tunec.compiler.unknown_releases import unsupported
from tunec.compiler.watch.probe_files import ProbeFiles, carried
from tunec.schemas.caches import BoundedCache
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.repair import Repair

Hook = Callable[[Pass, Ledger], None]
"""Called after each pass, with everything that has been decided by then."""


class Planned(Struct, frozen=True):
    """A spec with its plan, or with the reasons why there is none."""

    loaded: Loaded
    diagnostics: tuple[Diagnostic, ...]
    facts: Facts | None = None
    ledger: Ledger = field(default_factory=Ledger)
    plan: Plan | None = None
    memory: Account | None = None
    time: TimeAccount | None = None

    @property
    def ok(self) -> bool:
        """Whether there are no errors; warnings and notes do not count."""
        return not has_errors(self.diagnostics)


class Compiled(Struct, frozen=True):
    """A plan with the files of each requested target, and the files that start them."""

    planned: Planned
    artifacts: Mapping[str, tuple[Artifact, ...]]
    diagnostics: tuple[Diagnostic, ...]
    run: Artifact | None = None
    """The bundle's entry script; None if there is nothing to start."""
    packages: Artifact | None = None
    """The requirements file for pip; None if the entry script installs the packages itself."""
    beside: Mapping[str, tuple[Artifact, ...]] = field(default_factory=dict)
    """Files of the bundle that no target writes, by folder."""
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """The plan for each target's files, with local paths as the target's program sees them."""

    @property
    def ok(self) -> bool:
        """Whether every requested file could be written."""
        return not has_errors(self.diagnostics)

    def texts(self) -> dict[str, str]:
        """The text of each file by its path below the output directory."""
        every = {
            f"{target}/{each.name}": each.text
            for target, artifacts in (*self.artifacts.items(), *self.beside.items())
            for each in artifacts
        }
        entry = {each.name: each.text for each in (self.run, self.packages) if each}
        return {**every, **entry}


def plan(
    loaded: Loaded, asked: Sequence[Asked] = (), *, hook: Hook | None = None, repairing: bool = True
) -> Planned:
    """Decide every slot with the targets' pins; `repairing` looks for changes if nothing fits."""
    if loaded.spec is None:
        return Planned(loaded, loaded.diagnostics)
    versions = {target.package: str(version) for target, version in asked}
    try:
        facts = resolve(
            loaded.spec,
            loaded.base,
            requirements(asked),
            versions,
            loaded.followed,
            loaded.calibration,
        )
    except Unresolved as unresolved:
        return Planned(loaded, locate((*loaded.diagnostics, *unresolved.diagnostics), loaded))
    written_for = releases(asked, facts.versions, facts.model)
    facts = replace(
        facts,
        versions={**brought(written_for), **facts.versions},
        imports=imports(asked),
        needs=(*needs(asked), *preferences(asked)),
        releases=written_for,
        takes_fsdp=take_fsdp(asked),
        starts_workers=any(target.starts_workers(loaded.spec) for target, _ in asked),
        lengths=loaded.lengths,
        counted=loaded.counted,
        counting=counting(asked, facts.versions, loaded.spec),
    )
    draft, ledger, found, answer = _run(facts, hook)
    if has_errors(found) and preferences(asked):
        facts = replace(facts, needs=needs(asked))
        draft, ledger, found, answer = _run(facts, hook)
    if facts.takes_fsdp and _is_in_vain(draft.plan(), facts, asked, fits=not has_errors(found)):
        facts = replace(facts, takes_fsdp=False)
        draft, ledger, found, answer = _run(facts, hook)
    facts, decided = facts.informed(draft), draft.plan()
    unread = unknown_allowances(loaded.spec.allow)
    said = (*loaded.diagnostics, *unread, *_unanswerable(loaded, asked, facts), *found)
    found = (*said, *_breaches(decided, facts, ledger, fits=not has_errors(found)))
    if has_errors(found):
        if repairing:
            from tunec.compiler.repair import repairs

            found = tuple(repairs(facts, found, partial(_attempt, loaded, asked)))
        return Planned(loaded, locate(found, loaded), facts, ledger)
    decided, ledger = with_entry(decided, ledger, facts, asked)
    memory, time = _accounts(decided, facts, answer or search(problem_of(facts, draft)))
    return Planned(loaded, locate(found, loaded), facts, ledger, decided, memory, time)


def _is_in_vain(decided: Plan, facts: Facts, asked: Sequence[Asked], *, fits: bool) -> bool:
    """Whether FSDP was tried without a request and cannot be said, or a base packed in vain."""
    if decided.parallel.engine == "fsdp":
        return facts.spec.engine is None and not _is_said(decided, facts, asked)
    return fits and facts.tries_fsdp and decided.quantization.storage is not None


def _is_said(decided: Plan, facts: Facts, asked: Sequence[Asked]) -> bool:
    """Whether every requested target can express a plan."""
    return not any(
        has_errors(emit(target, decided, version, software=facts.versions, header=())[1])
        for target, version in asked
    )


def _accounts(plan: Plan, facts: Facts, answer: Answer) -> tuple[Account, TimeAccount]:
    """Memory and time of a plan, in the layout that the search found unless pins changed it."""
    problem, best = answer.problem, answer.best
    found = best if best is not None and _is_found(best.layout, facts) else None
    layout = found.layout if found else Layout.of(plan)
    time = found.time if found else step_time(problem.workload, layout, problem.machine)
    return account(problem.workload, layout, problem.vendor), as_ran(time, facts.cluster.measured)


def _is_found(layout: Layout, facts: Facts) -> bool:
    """Whether a layout agrees with every pin of its slots."""
    said = ((SLOTS[path], pin.value) for path, pin in facts.pins.items())
    return all(
        getattr(getattr(layout, slot.group), slot.attribute) == value
        for slot, value in said
        if slot.group in FIT
    )


def _unanswerable(loaded: Loaded, asked: Sequence[Asked], facts: Facts) -> Iterator[Diagnostic]:
    """Faults of the requested targets that do not depend on the plan."""
    yield from _UNKNOWN.of((asked, facts.versions), (), partial(_unknown, asked, facts.versions))
    yield from contradicted(loaded, asked)


_UNKNOWN: Final = BoundedCache[tuple[Diagnostic, ...]]("compiler.driver.unknown", 64, lasting=True)


def _unknown(asked: Sequence[Asked], versions: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Faults of the requested releases."""
    outside = (each for target, version in asked for each in unsupported(target, version, versions))
    return (*torn(asked), *outside)


def _attempt(loaded: Loaded, asked: Sequence[Asked], settings: Sequence[str]) -> "Repair":
    """The outcome of a spec with more settings, compiled for the requested targets."""
    from tunec.compiler.repair import Repair

    changed = with_settings(loaded, settings)
    if changed.spec is None:
        return Repair()
    told = {n: v for n, v in changed.software.items() if loaded.software.get(n) != v}
    again = [(t, t.release(told[t.package]) if t.package in told else v) for t, v in asked]
    result = compile_spec(changed, again, repairing=False)
    time = result.planned.time
    errors = (each.message for each in result.diagnostics if each.severity == "error")
    return Repair() if time is None else Repair(1 / time.samples_per_second, next(errors, None))


Objecting = Callable[[Asked, Sequence[Artifact], Facts, Plan], tuple[Diagnostic, ...]]
"""Runs the lint rules over the files of one target."""


def emit_for(
    asked: Asked, plan: Plan, software: Mapping[str, str], header: tuple[str, ...]
) -> Emitted:
    """Write a plan as the files of one requested target."""
    target, version = asked
    return emit(target, plan, version, software=software, header=header)


def compile_spec(
    loaded: Loaded, asked: Sequence[Asked], outset: Outset | None = None, *, repairing: bool = True
) -> Compiled:
    """Plan a spec and write every requested target's files, in memory; all or none.

    With an `outset` the files form a bundle, which `run` starts; without one each stands alone.
    """
    made = written(plan(loaded, asked, repairing=repairing), asked, outset)
    if made.ok or not repairing:
        return made
    alone = (compile_spec(loaded, [each], outset, repairing=False).ok for each in asked)
    return replace(made, diagnostics=compiled_apart(made.diagnostics, asked, alone))


def written(
    planned: Planned,
    asked: Sequence[Asked],
    outset: Outset | None = None,
    emitting: Emitting = emit_for,
    objecting: Objecting = objections,
) -> Compiled:
    """The files of a plan. `emitting` and `objecting` may reuse the results of other plans."""
    if planned.plan is None or planned.facts is None:
        return Compiled(planned, {}, planned.diagnostics)
    loaded, spec, decided = planned.loaded, planned.facts.spec, planned.plan
    if outset is not None:
        asked = completed(asked, decided, spec, outset.starter)
    probe = carried(asked) if spec.watch and outset is not None else ProbeFiles()
    plans = probe.put_into(as_seen(asked, decided, loaded, outset))
    header = header_of(loaded, decided)
    plans = with_commands(asked, plans, spec, emitting, planned.facts.versions)
    artifacts: dict[str, tuple[Artifact, ...]] = {}
    found = [*planned.diagnostics, *locate(unread((each for each, _ in asked), decided), loaded)]
    for each in asked:
        name = each[0].name
        seen = replace(planned, plan=plans[name])
        artifacts[name], more = emitting(each, plans[name], planned.facts.versions, header)
        found += locate(traced(more, planned.ledger, loaded), loaded)
        found += locate(unread_columns(loaded, decided, each[0]), loaded)
        found += locate(foreign_speakers(loaded, decided, each[0]), loaded)
        found += locate(unseen_pictures(loaded, decided, each[0]), loaded)
        found += locate(missing_template(loaded, decided, each, artifacts[name]), loaded)
        if not has_errors(more):
            found += lint_findings(seen, each, artifacts[name], objecting)
    if has_errors(found):
        return Compiled(planned, {}, tuple(found))
    told = every_token_counts(loaded, decided, asked, artifacts, planned.facts.versions)
    found += locate(told, loaded)
    if outset is None:
        return Compiled(planned, enclosed(asked, decided, artifacts), tuple(found), plans=plans)
    made = bundle(asked, artifacts, decided, spec, header, outset.spec)
    found += locate((*made.diagnostics, *probe.diagnostics), loaded)
    found += locate(tuple(lost_paths(loaded, outset.spec)), loaded)
    if has_errors(found):
        return Compiled(planned, {}, tuple(found))
    files = enclosed(asked, decided, made.artifacts)
    beside = probe.files(planned.facts, planned.memory, planned.time, loaded, outset.spec)
    return Compiled(planned, files, tuple(found), made.run, made.packages, beside, plans)


def lint_findings(
    planned: Planned, asked: Asked, files: Sequence[Artifact], objecting: Objecting = objections
) -> tuple[Diagnostic, ...]:
    """Findings of lint rules in a plan's files for a target; `allow` never silences errors."""
    if planned.facts is None or planned.plan is None:
        return ()
    found = objecting(asked, files, planned.facts, planned.plan)
    if not found:
        return ()
    errors = [each for each in found if each.severity == "error"]
    rest = [each for each in found if each.severity != "error"]
    strictly = replace(planned.loaded, allowances=())
    return (*locate(errors, strictly), *locate(rest, planned.loaded))


def run_passes(
    facts: Facts, hook: Hook | None = None
) -> tuple[Draft, Ledger, tuple[Diagnostic, ...]]:
    """Run the pipeline; return the decided groups, every definition, and the diagnostics."""
    draft, ledger, found, _ = _run(facts, hook)
    return draft, ledger, found


def _run(
    facts: Facts, hook: Hook | None
) -> tuple[Draft, Ledger, tuple[Diagnostic, ...], Answer | None]:
    """Run the pipeline; return what `run_passes` does, and the search's answer.

    Passes run in stages; with a hook, or if a target's pins may depend on any group, one by one.
    Pins that depend on a group of the search come after all stages.
    """
    draft = Draft({})
    found: list[Diagnostic] = []
    answer: Answer | None = None
    ledger = Ledger().add(tuple(facts.pins.values()))
    is_late = all(need.after in FIT for need in facts.needs)
    for stage in STAGES if hook is None and is_late else _SINGLE:
        known, facts = facts.pins, facts.informed(draft)
        if facts.pins is not known:
            more = (pin for slot, pin in facts.pins.items() if slot not in known)
            ledger = ledger.add(tuple(more))
        taken = stage.take(facts, draft)
        ledger = ledger.later(partial(_definitions, taken.outcomes))
        draft = draft.with_groups(taken.groups)
        found += taken.diagnostics
        answer = taken.answer or answer
        if hook is not None:
            hook(stage.passes[-1], ledger)
    return draft, ledger, tuple(found), answer


_SINGLE: Final = tuple(Stage((each,)) for each in PIPELINE)


def _definitions(outcomes: Sequence[tuple[Pass, Outcome]]) -> tuple[Definition, ...]:
    return tuple(
        Definition(path, d.value, Rank.DERIVED, each.name, d.reason, d.rests, d.beat)
        for each, outcome in outcomes
        for path, d in outcome.decisions.items()
    )


def _breaches(plan: Plan, facts: Facts, ledger: Ledger, *, fits: bool) -> list[Diagnostic]:
    """Invariants that the pins break; if nothing fits, only those between pins alone."""
    found: list[Diagnostic] = []
    for each in breaches(plan):
        pinned = [path for path in each.slots if path in facts.pins]
        if not fits and len(pinned) < len(each.slots):
            continue
        values = ", ".join(f"{path} is {plan[path]}" for path in each.slots)
        labels = tuple(Label("pinned here", path=f"pin.{path}") for path in pinned)
        said = dict.fromkeys(at for path in each.slots for at in _said_at(path, ledger))
        labels = labels or tuple(Label("said here", path=at) for at in said)
        found.append(
            Diagnostic(
                "E0402",
                "error",
                f"{each.text}, but {values}",
                labels,
                help="change or drop one of these pins" if pinned else "change one of them",
            )
        )
    return found


def _said_at(path: str, ledger: Ledger) -> Iterator[str]:
    """The places in the spec on which a slot rests directly."""
    winner = ledger.winner(path)
    yield from (each.path for each in (winner.rests if winner else ()) if each.kind == "spec")
