"""The output of `tunec resume`: the checkpoint, how training continues, and what changes."""

from collections.abc import Iterator
from shlex import join, quote
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.terminal import printable
from tunec.compiler.driver import Planned
from tunec.compiler.ir.plan import Plan
from tunec.compiler.releases import Releases
from tunec.compiler.resume.folder import Checkpoint
from tunec.compiler.resume.ways import Goal, Way
from tunec.compiler.review.screen.pen import Pen

_NAMES = {
    "deepspeed": "DeepSpeed",
    "universal": "DeepSpeed, universal",
    "fsdp-sharded": "FSDP, sharded",
    "fsdp-full": "FSDP, whole",
    "trainer": "Trainer",
    "accelerate": "accelerate",
    "weights": "weights alone",
}
_HEADS = {
    "same state": ("good", "continues with the same optimizer state"),
    "converted": ("tight", "continues with the same optimizer state after a conversion"),
    "weights alone": ("bad", "the optimizer state is lost, and only the weights go on"),
}


class Report(Struct, frozen=True):
    """A checkpoint, the new hardware, and how training continues there."""

    found: Checkpoint
    goal: Goal
    way: Way
    batch: int | None
    """Samples of one optimizer step in the original run; none: the folder does not tell."""
    planned: Planned | None = None
    resumes: str = ""
    """The argument by which the requested trainer gets a checkpoint (`Target.resumes`)."""
    compiling: tuple[str, ...] = ()
    """The command that writes the bundle of the new run, without what the way sets."""

    @property
    def plan(self) -> Plan | None:
        """The plan on the new hardware."""
        return self.planned.plan if self.planned is not None else None


def batch_before(found: Checkpoint) -> int | None:
    """Samples of one optimizer step in the run that wrote it."""
    progress, settings = found.progress, found.settings
    micro = settings.micro or (progress.micro if progress is not None else None)
    if micro is None or settings.accumulation is None or found.world is None:
        return None
    return micro * settings.accumulation * found.world


def report_text(report: Report, pen: Pen) -> str:
    """The report as one screen."""
    style, head = _HEADS[report.way.outcome]
    lines = [
        *_folder(report.found, pen),
        *_goal(report),
        "",
        f"{pen.paint(style, head)}: {report.way.why}",
        *(f"  run   {printable(each)}" for each in commands(report)),
        *(f"  set   {printable(each)}" for each in settings(report)),
        *(f"  lost  {each}" for each in lost(report)),
        pen.paint("dim", f"  by    {report.way.source}"),
        "",
        *(f"{name:<8}{text}" for name, text in consequences(report)),
    ]
    return "\n".join(lines)


def commands(report: Report) -> Iterator[str]:
    """The commands to run; the last two write the new run's bundle `out`, and start it."""
    yield from report.way.commands
    if report.resumes and report.way.outcome != "weights alone":
        path = quote(str(report.found.path.resolve()))
        sets = (word for each in _sets(report) for word in ("--set", each))
        yield join([*report.compiling, *sets, "-o", "out"])
        yield f"bash out/run.sh {report.resumes.format(path)}"


def _sets(report: Report) -> tuple[str, ...]:
    """What the spec must set and the plan does not have yet."""
    had = {f"pin.fsdp.state_dict={report.plan.fsdp.state_dict}"} if report.plan else set[str]()
    return tuple(each for each in report.way.sets if each not in had)


def settings(report: Report) -> Iterator[str]:
    """What the new run needs and the commands do not set."""
    way, plan, path = report.way, report.plan, f'"{report.found.path.resolve()}"'
    goes_on = way.outcome != "weights alone"
    if not (way.sets and report.resumes and goes_on):
        yield from way.settings
    if goes_on and plan is not None and not report.resumes:
        is_own = report.found.kind == "accelerate"
        call = "accelerator.load_state({})" if is_own else "train(resume_from_checkpoint={})"
        yield f"in the script: {call.format(path)}"


def _folder(found: Checkpoint, pen: Pen) -> Iterator[str]:
    stage = {None: "", 2: " ZeRO-1 or 2"}.get(found.stage, f" ZeRO-{found.stage}")
    progress = found.progress
    step = f", step {progress.step:,} of {progress.max_steps:,}" if progress else ""
    ranks = f", by {found.world} rank{'' if found.world == 1 else 's'}" if found.world else ""
    release = f" ({printable(found.release)})" if found.release else ""
    name = printable(str(found.path))
    yield pen.paint("bold", f"{name}: {_NAMES[found.kind]}{stage}{step}{ranks}{release}")
    yield "holds   " + "; ".join(_held(found))
    if found.unread:
        yield pen.paint(
            "dim", f"not read, being pickles: {', '.join(map(printable, found.unread))}"
        )


def _held(found: Checkpoint) -> Iterator[str]:
    if found.weights is not None:
        kind = "adapter" if found.adapter is not None else "weights"
        dtypes = ", ".join(found.weights.dtypes)
        yield f"{kind}, {found.weights.parameters:,} parameters in {dtypes}"
    elif found.kind != "trainer":
        yield "weights in the engine's own files"
    yield "optimizer state" if found.has_optimizer else "no optimizer state"
    yield "schedule" if found.has_schedule else "no schedule"
    if found.model_ranks > 1:
        yield f"{found.model_ranks} parts of the model"
    if not found.has_random:
        yield "no random states"


def _goal(report: Report) -> Iterator[str]:
    goal, plan = report.goal, report.plan
    engine = {"deepspeed": "DeepSpeed", "fsdp": "FSDP", "plain": "one process or DDP"}[goal.family]
    stage = f" ZeRO-{goal.stage}" if goal.stage else ""
    batch = (
        f", micro batch {plan.batch.micro}, {plan.batch.accumulation} accumulated" if plan else ""
    )
    yield f"new     {goal.world} rank{'' if goal.world == 1 else 's'}, {engine}{stage}{batch}"


def lost(report: Report) -> Iterator[str]:
    """What is not carried over."""
    yield from report.way.lost
    found = report.found
    is_cut = found.has_random and found.world not in (None, report.goal.world)
    if report.way.outcome != "weights alone" and is_cut:
        yield (
            f"random states of {found.world} rank{'' if found.world == 1 else 's'} do not fit "
            f"{report.goal.world}: dropout and other draws differ from here on"
        )
    yield from _adapter(report)


_NEAR = 0.02
"""Share of the parameters by which a plan and a file may differ, for example by buffers."""


def other_model(report: Report) -> str | None:
    """Why the folder belongs to another model than the plan's; None if that is unknown."""
    found, plan = report.found, report.plan
    if plan is None:
        return None
    base = found.adapter.get("base_model_name_or_path") if found.adapter is not None else None
    if isinstance(base, str) and "/" in base and not _is_of(base, report, plan):
        return f"the adapter is of {printable(base)}, and the plan trains {plan.model.path}"
    if found.weights is None or found.adapter is not None:
        return None
    there, asked = found.weights.parameters, plan.model.parameters
    if any(abs(each - asked) <= _NEAR * asked for each in (there, there - found.weights.head)):
        return None
    return f"the folder has {there:,} parameters, and the plan's model {asked:,}"


def _is_of(base: str, report: Report, plan: Plan) -> bool:
    """Whether a base is the plan's model; a local path is relative to where the run began.

    That is the root of a bundle that contains the checkpoint.
    """
    if base.lower() == plan.model.path.lower():
        return True
    if report.planned is None:
        return False
    asked = (report.planned.loaded.base / plan.model.path).resolve()
    return any((above / base).resolve() == asked for above in report.found.path.resolve().parents)


def _adapter(report: Report) -> Iterator[str]:
    adapter, plan = report.found.adapter, report.plan
    if adapter is None or plan is None:
        return
    rank = adapter.get("r")
    if plan.adapter.kind == "none":
        yield "the adapter: the plan trains the whole model (merge it first: `merge_and_unload`)"
    elif isinstance(rank, int) and rank != plan.adapter.rank:
        yield f"the adapter: its rank is {rank}, and the plan's {plan.adapter.rank}: shapes differ"


def consequences(report: Report) -> Iterator[tuple[str, str]]:
    """What happens to batch, learning rate and data."""
    other = other_model(report)
    if other is not None:
        yield "model", f"{other}: another model"
    yield "batch", _batch(report)
    if report.found.newest:
        yield "inside", f"{printable(report.found.newest)} has the state of the optimizer: name it"
    if report.way.outcome == "weights alone":
        yield "rate", "a new schedule begins, warm-up included: a lower peak is usual"
        yield "data", "the run begins with the first sample: what was seen is seen again"
        return
    yield "rate", _rate(report)
    yield "data", _data(report)
    if report.plan is None:
        yield "next", "name the spec of the run, --spec SPEC, for the commands that start it"


def _batch(report: Report) -> str:
    plan, before = report.plan, report.batch
    if before is None:
        return "its size before is not in the folder: set batch.global to what it was"
    if plan is None:
        return f"{before} samples a step before: keep micro x accumulation x ranks at that"
    if plan.batch.global_ == before:
        return f"{before} samples a step, as before"
    return (
        f"{plan.batch.global_} samples a step, and {before} before: rate and noise no longer match"
    )


def _rate(report: Report) -> str:
    progress, plan = report.found.progress, report.plan
    if progress is None:
        return "no trainer_state.json gives the step: the schedule continues from its own state"
    last = f" after {progress.rate:.3g}" if progress.rate is not None else ""
    now = plan.schedule.steps or plan.schedule.estimated_steps if plan is not None else None
    if (now or progress.max_steps) <= progress.step:
        return (
            f"all {progress.step:,} steps are done, and the new run has no more: raise "
            "train.epochs or train.steps"
        )
    if now is None:
        return (
            f"continues at step {progress.step:,}{last}; keep the number of steps at "
            f"{progress.max_steps:,}, from which the Trainer derives the curve anew"
        )
    if now == progress.max_steps:
        return f"continues along the same curve at step {progress.step:,} of {now:,}{last}"
    before, after = progress.step / progress.max_steps, progress.step / now
    return (
        f"jumps: the curve is derived anew for {now:,} steps, so step {progress.step:,} is "
        f"{after:.0%} of the way and not {before:.0%}; set train.steps={progress.max_steps} to "
        "keep it"
    )


def _data(report: Report) -> str:
    plan, progress, before = report.plan, report.found.progress, report.batch
    if report.found.kind == "accelerate" or progress is None:
        return "your loop skips what was seen: accelerate's `skip_first_batches`"
    if plan is not None and before is not None and plan.batch.global_ != before:
        return (
            f"the Trainer skips {progress.step:,} steps of the new batch: samples are seen twice "
            "or left out"
        )
    again = _repeated_order(report)
    if again is not None:
        return (
            f"the Trainer skips {progress.step:,} steps, but {again} then deals the rest of this "
            "epoch in the order of the first: some samples are seen twice in it, others never. A "
            "checkpoint at the end of an epoch has no such rest; accelerate 1.15 deals it as before"
        )
    seed = report.found.settings.seed
    kept = f" {seed}" if seed is not None else ""
    return (
        f"the Trainer skips {progress.step:,} steps: with the same batch, data and seed{kept} each "
        "step sees the samples that it would have seen"
    )


_REPEATING: Final = {"transformers": Releases("<5.0"), "accelerate": Releases(">=1.7,<1.15")}
"""Releases that together forget the epoch as they skip its first steps. transformers before 5.0
trainer.py `_inner_training_loop` calls `set_epoch` before `skip_first_batches`, whose new loader
accelerate 1.7 to 1.14 data_loader.py `DataLoaderShard.__iter__` sets to epoch 0, with its sampler.
Both orders were tried with accelerate 0.30.1 to 1.15.0."""


def _repeated_order(report: Report) -> str | None:
    """The releases that repeat the first epoch's order in the rest of a later one, if they do."""
    planned, progress = report.planned, report.found.progress
    if planned is None or planned.facts is None or progress is None:
        return None
    if progress.epochs <= 1 or progress.epochs.is_integer():
        return None
    held = {**planned.facts.releases, **planned.facts.versions}
    if any(
        not held.get(name) or not known.contains(held[name]) for name, known in _REPEATING.items()
    ):
        return None
    return " beside ".join(f"{name} {held[name]}" for name in _REPEATING)


def report_json(report: Report) -> dict[str, Any]:
    """The report as JSON."""
    found, way = report.found, report.way
    return {
        "checkpoint": {
            "path": str(found.path),
            "kind": found.kind,
            "tag": found.tag,
            "world": found.world,
            "stage": found.stage,
            "release": found.release,
            "unread": list(found.unread),
            "step": found.progress.step if found.progress else None,
            "max_steps": found.progress.max_steps if found.progress else None,
            "has_optimizer": found.has_optimizer,
            "global_batch": report.batch,
        },
        "goal": {
            "family": report.goal.family,
            "world": report.goal.world,
            "stage": report.goal.stage,
        },
        "outcome": way.outcome,
        "why": way.why,
        "commands": list(commands(report)),
        "settings": list(settings(report)),
        "lost": list(lost(report)),
        "consequences": dict(consequences(report)),
        "source": way.source,
    }
