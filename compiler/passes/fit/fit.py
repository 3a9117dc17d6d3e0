"""fit: ZeRO stage, offload, checkpointing and batch, chosen together: the fastest that fits."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tunec.compiler.analyses.measurements import margin_of, pace_of
from tunec.compiler.analyses.memory.account import required_bytes
from tunec.compiler.analyses.memory.sharding import gathers_twice
from tunec.compiler.analyses.memory.workload import NOT_SEEN, Layout, Workload
from tunec.compiler.analyses.padding import padded_counts
from tunec.compiler.analyses.time.machine import machine_of
from tunec.compiler.analyses.trainable import adapted_modules, trained_modules
from tunec.compiler.facts import Facts
from tunec.compiler.ir.ledger import Alternative, Decision, Origin
from tunec.compiler.ir.plan import Draft, build_group, values_of
from tunec.compiler.ir.slots import SLOTS, Precision
from tunec.compiler.passes.contract import Outcome, Scribe, slot, spec
from tunec.compiler.passes.defaults import BATCH, BATCH_TOKENS, GRADIENTS
from tunec.compiler.passes.fit.answers import answers_of, kept_batches, preference_of, written_of
from tunec.compiler.passes.fit.critic import critic_of
from tunec.compiler.passes.fit.problem import SHAPE_SLOTS, Problem, Shape, layout_of
from tunec.compiler.passes.fit.search import Answer, Candidate, Verdict, chosen, describe, search
from tunec.compiler.passes.fit.shapes import global_batch, shapes, usual_batch
from tunec.compiler.passes.fit.states import sums_in_fp32
from tunec.compiler.passes.software import loses_its_schedule
from tunec.schemas.caches import BoundedCache, cached
from tunec.schemas.frozen import replace
from tunec.schemas.units import format_bytes

GROUPS = ("parallel", "states", "zero", "fsdp", "activation_checkpointing", "batch")

_FOLLOWS = {
    "states": (
        "follows from engine, method and precision",
        ("parallel.engine", "adapter.kind", "precision.compute"),
    ),
    "zero": (
        "follows from stage and offload",
        ("zero.stage", "zero.offload_optimizer", "zero.offload_param"),
    ),
    "fsdp": (
        "follows from version, sharding and checkpointing",
        ("fsdp.version", "fsdp.sharding", "activation_checkpointing.mode"),
    ),
    "activation_checkpointing": (
        (
            "each layer separately, with its input on the device; torch recommends the "
            "non-reentrant variant"
        ),
        ("activation_checkpointing.mode",),
    ),
    "parallel": (
        "one process per device; only the data is split",
        ("devices.nodes", "devices.per_node"),
    ),
}
"""Reasons and origins of groups that follow from what the search chose."""

"""The facts from which the problem is made, besides pins."""


def problem_of(facts: Facts, draft: Draft) -> Problem:
    """Make the search's problem from facts and earlier decisions."""
    selection = facts.selection
    host = selection.node.host
    batch = facts.pinned("batch.global", facts.spec.batch.global_)
    pins = {path: pin.value for path, pin in facts.pins.items() if SLOTS[path].group in GROUPS}
    return Problem(
        workload=workload_of(facts, draft),
        machine=machine_of(
            selection.devices,
            selection.node,
            facts.cluster.network,
            nodes=draft.devices.nodes,
            per_node=draft.devices.per_node,
            dtype=draft.precision.compute,
            tf32=draft.precision.tf32,
            pace=pace_of(facts.cluster.measured),
        ),
        budget=draft.devices.budget,
        reserve=draft.devices.reserve,
        host_budget=draft.devices.host_budget,
        nvme_path=facts.pinned("zero.nvme_path", host.nvme.path) if host.nvme else None,
        nodes=draft.devices.nodes,
        per_node=draft.devices.per_node,
        global_batch=batch,
        trainable=draft.adapter.trainable_parameters,
        engine=facts.spec.engine,
        pins=tuple(sorted(pins.items())),
        group=max(draft.generation.samples, 1),
        vendor=selection.devices[0].vendor,
        takes_fsdp=facts.takes_fsdp,
        loses_schedule=loses_its_schedule(facts, draft),
    )


def workload_of(facts: Facts, draft: Draft) -> Workload:
    """The part of a problem that the search does not change; equal inputs give one object."""
    told = (
        *(facts.model.calibration, facts.model.architecture, facts.model.components),
        *(draft.data, _stored(draft.precision), draft.attention, draft.quantization),
        *(draft.adapter, draft.optimizer, draft.loss, draft.objective, draft.generation),
        *(draft.evaluation, facts.lengths, draft.ppo, facts.critic),
        *(facts.versions, _engine_bytes(draft), facts.selection.shares_host_memory),
        margin_of(facts.cluster.measured),
    )
    peft = facts.releases.get("peft")
    return _WORKLOADS.of(told, peft, partial(_workload, facts, draft))


def _versions(facts: Facts) -> Mapping[str, str]:
    """The releases that will run, with PEFT's, which the requested trainers install."""
    peft = {name: release for name, release in facts.releases.items() if name == "peft"}
    return {**peft, **facts.versions}


_WORKLOADS: Final = BoundedCache[Workload]("compiler.passes.fit.fit.workloads", 256)


@cached(64)
def _stored(precision: Precision) -> Precision:
    """A precision without tf32, which changes the speed and nothing in memory."""
    values = {**values_of("precision", precision), "precision.tf32": False}
    stored: Precision = build_group("precision", values)
    return stored


def _engine_bytes(draft: Draft) -> int:
    return round(draft.generation.device_share * draft.devices.memory)


def _workload(facts: Facts, draft: Draft) -> Workload:
    architecture, adapter = facts.model.architecture, draft.adapter
    return Workload(
        architecture=architecture,
        components=facts.model.components,
        data=draft.data,
        precision=_stored(draft.precision),
        attention=draft.attention,
        quantization=draft.quantization,
        adapter=adapter,
        optimizer=draft.optimizer,
        adapted=()
        if adapter.kind == "none"
        else adapted_modules(architecture, adapter.targets, adapter.parameters),
        trained=trained_modules(architecture, adapter),
        versions=tuple(sorted(_versions(facts).items())),
        loss=draft.loss.path,
        preference=preference_of(draft.objective, draft.generation),
        generation=written_of(draft.generation),
        evaluated=answers_of(draft.evaluation, draft.data.image_tokens),
        kept_evaluation_batches=kept_batches(draft.evaluation),
        generation_engine_bytes=_engine_bytes(draft),
        calibration=facts.model.calibration,
        shares_host_memory=facts.selection.shares_host_memory,
        lengths=padded_counts(facts.lengths, draft.data, draft.objective),
        critic=critic_of(facts, draft, _stored(draft.precision), _versions(facts)),
        margin=margin_of(facts.cluster.measured),
    )


def fit(facts: Facts, draft: Draft) -> Outcome:
    """Search engine, ZeRO stage, offload, checkpointing, micro batch and accumulation jointly."""
    scribe = Scribe(facts)
    problem = problem_of(facts, draft)
    answer = search(problem)
    if answer.best is None:
        from tunec.compiler.passes.fit.shortfall import infeasible

        scribe.diagnostics.append(infeasible(facts, problem, answer))
        layout = _fallback(problem, answer)
    else:
        _idle_devices(scribe, problem, answer.best)
        _spent_reserve(scribe, problem, answer.best)
        layout = answer.best.layout
    explain = partial(_decisions, problem, layout)
    values, groups = _SAID.of((layout,), (), partial(_slots_of, layout))
    return Outcome(values, explain, tuple(scribe.diagnostics), groups, answer)


_FIELDS: Final = tuple(
    (path, each.group, each.attribute)
    for group in GROUPS
    for path, each in SLOTS.items()
    if each.group == group
)


_Said = tuple[Mapping[str, Any], Mapping[str, object]]
_SAID: Final = BoundedCache[_Said]("compiler.passes.fit.fit.said", 1024)


def _slots_of(layout: Layout) -> _Said:
    """A layout's slot values and groups; many clusters share them."""
    values = _values(layout)
    return values, {group: build_group(group, values) for group in GROUPS}


def _values(layout: Layout) -> dict[str, Any]:
    groups = {group: getattr(layout, group) for group in GROUPS}
    return {path: getattr(groups[group], name) for path, group, name in _FIELDS}


_REENTRANT: Final = (
    "the other variant fails with frozen weights, which DeepSpeed before 0.19.3 removes",
    (slot("activation_checkpointing.mode"), slot("zero.stage"), slot("adapter.kind")),
)
_ONCE: Final = ("the other variant gathers frozen experts twice at a time", _REENTRANT[1])
_SUMMED: Final = (
    "gradients are accumulated in fp32: a bf16 sum loses addends below 1/256 of it",
    (slot("batch.accumulation"), slot("precision.compute"), slot("zero.stage")),
)


_NARROW: Final = (
    "gradients are accumulated in bf16: fp32 does not fit, or costs a tenth of the speed",
    (slot("devices.budget"), slot("batch.accumulation"), slot("zero.stage")),
)


def _special(
    path: str, value: Any, workload: Workload, layout: Layout
) -> tuple[str, tuple[Origin, ...]] | None:
    """The reason for a slot that does not follow from what the rest of its group follows from."""
    if path == "activation_checkpointing.reentrant" and value:
        return _ONCE if gathers_twice(workload, layout.zero) else _REENTRANT
    states, is_several = layout.states, layout.batch.accumulation > 1
    if path != "states.gradients" or states.trainable != "bf16" or not is_several:
        return None
    if value == GRADIENTS.value:
        return _SUMMED
    return _NARROW if sums_in_fp32(workload, states, layout.zero) else None


def _decisions(problem: Problem, layout: Layout) -> dict[str, Decision]:
    """A decision for each slot; a pinned one also names what would be chosen without the pin."""
    answer, pins = search(problem), dict(problem.pins)
    free = _unpinned(problem) if pins else None
    wished = _values(free.layout) if free else {}
    decisions: dict[str, Decision] = {}
    for path, decided in _values(layout).items():
        value = wished.get(path, decided) if path in pins else decided
        own = _special(path, value, problem.workload, layout)
        reason, rests = own or _reason(path, problem, answer)
        beaten = tuple(_beaten(path, value, problem, answer))
        decisions[path] = Decision(value, reason, rests, beaten)
    return decisions


def _unpinned(problem: Problem) -> Candidate | None:
    """What the search would choose without any pins."""
    return search(replace(problem, pins=())).best


def _reason(path: str, problem: Problem, answer: Answer) -> tuple[str, tuple[Origin, ...]]:
    rests = (slot("devices.budget"), slot("model.parameters"), slot("adapter.trainable_parameters"))
    if path == "parallel.engine" and problem.engine is not None:
        return "the spec asks for it", (spec("engine"),)
    if path == "fsdp.version":
        has = answer.best is not None and answer.best.shape.engine == "fsdp"
        newest = "the newest version that these releases accept"
        return (newest if has else "another engine is used"), (spec("software"), spec("engine"))
    if path in SHAPE_SLOTS or path in ("batch.micro", "batch.accumulation"):
        return f"{chosen(answer)} {_room(problem, answer)}{_by_runs(problem)}", rests
    if path == "batch.global":
        return _why_so_many(problem), (spec("batch.global"),)
    if path == "batch.evaluation":
        why = "as in training: evaluation keeps fewer activations"
        if problem.group > 1 and problem.workload.data.evaluation is not None:
            why = f"{why}; all devices together evaluate whole groups of {problem.group} answers"
        return why, (slot("batch.micro"),)
    why, above = _FOLLOWS[path.partition(".")[0]]
    return why, tuple(map(slot, above))


def _by_runs(problem: Problem) -> str:
    """A clause if measured runs on the cluster set its speed or its margin."""
    said = ["time"] if problem.machine.pace else []
    said += ["margin"] if problem.workload.margin != NOT_SEEN else []
    return f"; {' and '.join(said)} as runs on this cluster had it" if said else ""


def _why_so_many(problem: Problem) -> str:
    if problem.global_batch is not None:
        return "as the spec has it"
    if usual_batch(problem.workload) < BATCH.value and problem.workload.data.sequence:
        return (
            f"not given: {BATCH_TOKENS.value:,} tokens at most, but at least one sample for "
            "each device"
        )
    return "not given: a usual size that the devices divide evenly"


def _room(problem: Problem, answer: Answer) -> str:
    """The memory that a layout has to fit, and how much of it stays free."""
    has = format_bytes(problem.budget)
    keeps = problem.reserve and answer.best is not None and not answer.best.spends_reserve
    return f"{has}, {format_bytes(problem.reserve)} of it kept free" if keeps else has


def _beaten(path: str, value: Any, problem: Problem, answer: Answer) -> list[Alternative]:
    """The best layout that the search found with each other value of a slot."""
    if path not in SHAPE_SLOTS:
        return []
    best: dict[Any, Verdict] = {}
    for verdict in answer.verdicts:
        other = verdict.shape.says(path)
        if other != value and (other not in best or _closer(verdict, best[other])):
            best[other] = verdict
    return [
        Alternative(other, f"{verdict.shape}: {describe(verdict, problem)}")
        for other, verdict in best.items()
    ]


def _closer(verdict: Verdict, other: Verdict) -> bool:
    return _distance(verdict) < _distance(other)


def _distance(verdict: Verdict) -> tuple[int, float]:
    if verdict.best is not None:
        return (0, verdict.best.cost)
    if verdict.refusal is None:
        return (1, float(verdict.required or verdict.host_required))
    return (2, 0.0)


def _idle_devices(scribe: Scribe, problem: Problem, best: Candidate) -> None:
    have = problem.nodes * problem.per_node
    meant = any(slot in scribe.facts.pins for slot in ("parallel.data", "parallel.world"))
    if best.shape.devices < have and not meant:
        scribe.report(
            "devices-idle",
            "warning",
            f"a global batch of {problem.global_batch} keeps {best.shape.devices} of {have} "
            "devices busy: each one takes whole samples",
            "batch.global",
            help=f"use a multiple of {have}",
        )


def _spent_reserve(scribe: Scribe, problem: Problem, best: Candidate) -> None:
    """Report that less memory than usual stays free, and what it would cost to leave more."""
    if not best.spends_reserve:
        return
    kept = problem.budget - problem.reserve
    within = search(replace(problem, budget=kept, reserve=0)).best
    left = problem.budget - required_bytes(problem.workload, best.layout)
    usual = format_bytes(problem.reserve)
    slower = f"is slower by {within.cost / best.cost - 1:.0%}" if within else ""
    scribe.report(
        "reserve-spent",
        "warning",
        f"the run leaves {format_bytes(left)} of {format_bytes(problem.budget)} free",
        "hardware",
        notes=(f"one that leaves {usual} {slower}" if within else f"none leaves {usual}",),
        help=f"`--set budget.gpu_memory={kept / problem.budget:.0%}` keeps it free"
        if within
        else None,
    )


def _fallback(problem: Problem, answer: Answer) -> Layout:
    """A layout to continue with after an error, so that later passes can report faults too."""
    if answer.nearest is not None and answer.nearest.smallest is not None:
        return answer.nearest.smallest
    shape = _any_shape(problem, answer)
    share = max(1, global_batch(problem, shape.width) // shape.width)
    return layout_of(problem, shape, 1, share)


def _any_shape(problem: Problem, answer: Answer) -> Shape:
    """A shape whose engine starts one process per device, if there is one."""
    every = [verdict.shape for verdict in answer.verdicts] or list(
        shapes(replace(problem, pins=()))
    )
    return min(every, key=lambda shape: (shape.engine == "none") != (shape.width == 1))
