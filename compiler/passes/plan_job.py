"""plan_job: what a job requests from a cluster besides devices, and what it installs."""

from typing import Final

from tunec.compiler.analyses.memory.margin import MARGIN as MEMORY_MARGIN
from tunec.compiler.analyses.memory.margin import Request, requested
from tunec.compiler.analyses.memory.terms.host import host_account
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.account import MARGIN as TIME_MARGIN
from tunec.compiler.analyses.time.account import Run, bounded
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.passes.contract import Outcome, Scribe, as_given, slot, spec
from tunec.compiler.passes.fit.fit import problem_of
from tunec.compiler.passes.fit.problem import Problem
from tunec.compiler.passes.fit.search import search
from tunec.compiler.passes.fit.timing import accounted
from tunec.compiler.passes.software import say_software
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.units import format_bytes

_SAID: Final = ("image", "setup", "queue", "account", "qos", "namespace", "volume", "infra", "spot")
"""Fields of the spec's `job` that become slots unchanged."""
_HALF: Final = 2
"""Bytes of one published weight."""


def plan_job(facts: Facts, draft: Draft) -> Outcome:
    """Request host memory and time by the accounts, and pin what must be installed."""
    scribe = Scribe(facts)
    problem, layout = problem_of(facts, draft), Layout.of(draft)
    scribe.say("job.name", facts.spec.name, "the spec's own name", spec("name"))
    _host_memory(scribe, problem, layout, draft)
    _time(scribe, draft)
    say_software(scribe, draft)
    for name in _SAID:
        value = getattr(facts.spec.job, name)
        why = as_given(facts.spec.job, name, "not given")
        scribe.say(f"job.{name}", value, why, spec(f"job.{name}"))
    if search(problem).best is None:  # advice about a job that cannot be is none
        scribe.diagnostics[:] = [each for each in scribe.diagnostics if each.severity == "error"]
    return scribe.outcome()


# ── host memory ──────────────────────────────────────────────────────────────────────────────────


def _host_memory(scribe: Scribe, problem: Problem, layout: Layout, draft: Draft) -> None:
    workload = _loaded_by(problem.workload, draft.runtime.dataloader_workers)
    needed = host_account(workload, layout).peak_bytes
    total = scribe.facts.selection.node.host.memory
    request = requested(needed, total, draft.devices.host_budget)
    rests = slot("devices.host_budget"), slot("runtime.dataloader_workers")
    scribe.say("job.host_memory", request.asked, _sum(request), *rests)
    budget = draft.devices.host_budget
    if request.is_tight and (budget is None or needed <= budget):
        scribe.report(
            "host-memory-tight",
            "warning",
            f"the run needs {format_bytes(needed)} of host memory on each node, and a node gives "
            f"a job {format_bytes(request.given)}",
            "budget.host_memory" if scribe.facts.spec.budget.host_memory else "hardware",
            notes=("the system and the kubelet or slurmd reserve part of a node's memory",),
            help="offload less to the host, or use nodes with more memory",
        )


@cached(256)
def _loaded_by(workload: Workload, workers: int) -> Workload:
    """The workload with its data loading; equal inputs give one object, as caches need."""
    return replace(workload, dataloader_workers=workers)


def _sum(request: Request) -> str:
    needed = format_bytes(request.needed)
    if request.is_tight:
        return f"{needed} are needed, more than the {format_bytes(request.given)} that a node gives"
    margin = f"{needed} are needed, plus {MEMORY_MARGIN:.0%}"
    if request.asked > request.given - request.given // 100:
        return f"{margin} are more than the {format_bytes(request.given)} that a node gives"
    return margin


# ── time ─────────────────────────────────────────────────────────────────────────────────────────


def _time(scribe: Scribe, draft: Draft) -> None:
    run = _run(scribe.facts, draft)
    asked = scribe.facts.spec.job.time
    if run is None:
        why = "the number of optimizer steps, or the time of one, is not known"
        duration = scribe.say("job.duration", None, why, slot("schedule.steps"))
    else:
        why = f"{run.steps:,} steps of {run.step_seconds:.3g} s, {_around(run)}, and "
        why += f"{TIME_MARGIN:.0%} extra"
        duration = scribe.say("job.duration", bounded(run), why, slot("schedule.steps"))
    why = "as the spec has it" if asked else "not given"
    scribe.say("job.time_limit", asked, why, spec("job.time"))
    if asked and run is not None and duration is not None and asked < run.seconds:
        _too_short(scribe, asked, run)


def _around(run: Run) -> str:
    return f"{(run.seconds - run.steps * run.step_seconds) / 60:.0f} min of loading and saving"


def _run(facts: Facts, draft: Draft) -> Run | None:
    schedule, time = draft.schedule, accounted(facts, draft)
    if schedule.steps is None or time is None:
        return None
    encoding = time.encoding * (draft.data.samples or 0)
    return run_of(draft, schedule.steps, time.step_seconds, encoding)


def run_of(decided: Draft | Plan, steps: int, step_seconds: float, encoding: float = 0.0) -> Run:
    """What a run of this many steps does besides the steps; the number may be an estimate."""
    each = decided.schedule.save_steps
    critic = decided.model.parameters if decided.ppo.critic else 0  # as a rule it is as large
    return Run(
        steps=steps,
        step_seconds=step_seconds,
        saves=steps // each if each else round(decided.schedule.epochs or 1),
        trained=decided.adapter.trainable_parameters + critic,
        weights=_HALF * (decided.model.parameters + critic),
        encoding=encoding,
    )


def _too_short(scribe: Scribe, asked: int, run: Run) -> None:
    scribe.report(
        "time-limit-too-short",
        "warning",
        f"the cluster ends the run after {asked / 3600:.1f} h, but it is expected to take "
        f"{run.seconds / 3600:.1f} h",
        "job.time",
        notes=(f"{run.steps:,} steps of {run.step_seconds:.3g} s, {_around(run)}",),
        help="raise job.time, or resume from the last checkpoint in further jobs",
    )
