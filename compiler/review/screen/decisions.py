"""The decisions that matter for a run: what the user set, what tunec decided, and why."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.terminal import printable
from tunec.compiler.driver import Planned
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.values import show
from tunec.compiler.review.explain import is_set, place_said
from tunec.compiler.review.screen.pen import WIDTH, Pen
from tunec.schemas.objective_facts import OBJECTIVES

_NAMED: Final = 4
"""The most modules that are listed by name; if there are more, they are counted."""


class Topic(Struct, frozen=True):
    """One line of a screen."""

    slot: str
    """The slot whose value and reason the line shows; `tunec explain` takes it for more detail."""
    weight: int
    """If there is no room for all lines, those with less weight are left out first."""
    matters: Callable[[Plan], bool]
    """Whether the topic matters for a plan."""
    words: Callable[[Plan], str]
    """The value in words, with related values."""


def _always(_: Plan) -> bool:
    return True


def _is_lora(plan: Plan) -> bool:
    return plan.adapter.kind == "lora"


def _some(count: float, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _sees(plan: Plan) -> bool:
    """Whether samples may hold images that become tokens of the text or of the generated image."""
    return plan.model.kind == "vision-language" or plan.data.image_tokens > 0


def _images(plan: Plan) -> str:
    if not plan.data.images:
        return "none"
    return f"{plan.data.images:,} a sample, {plan.data.image_tokens:,} tokens"


def _precision(plan: Plan) -> str:
    scaled = plan.precision.loss_scaling == "dynamic"
    return _joined(plan.precision.compute, "dynamic loss scaling" if scaled else "")


def _quantization(plan: Plan) -> str:
    return _joined(plan.quantization.format, "double" if plan.quantization.double else "")


def _adapter(plan: Plan) -> str:
    adapter = plan.adapter
    return _joined(
        f"{adapter.rank}",
        f"alpha {adapter.alpha:g}",
        f"dropout {adapter.dropout:g}" if adapter.dropout else "",
        "rsLoRA" if adapter.rslora else "",
        "DoRA" if adapter.dora else "",
    )


def _targets(plan: Plan) -> str:
    targets = plan.adapter.targets
    if isinstance(targets, str) or len(targets) <= _NAMED:
        return show("adapter.targets", targets)
    return f"{len(targets)} kinds of linear modules"


def _objective(plan: Plan) -> str:
    objective = plan.objective
    if OBJECTIVES[objective.kind].scores:
        return objective.kind
    return _joined(objective.kind, f"{objective.loss} loss", f"beta {objective.beta:g}")


def _generation(plan: Plan) -> str:
    made = plan.generation
    return f"{made.engine}, {made.samples} x {_some(made.completion, 'token')}"


def _optimizer(plan: Plan) -> str:
    held = "" if plan.states.optimizer == "fp32" else f"states in {plan.states.optimizer}"
    return _joined(plan.optimizer.name, held)


def _rate(plan: Plan) -> str:
    return f"{plan.optimizer.learning_rate:g}, {plan.schedule.kind.replace('_', ' ')}"


def _engine(plan: Plan) -> str:
    engine, fsdp = plan.parallel.engine, plan.fsdp
    if engine == "deepspeed":
        return f"DeepSpeed, ZeRO {plan.zero.stage}"
    if engine == "fsdp":
        away = "parameters on cpu" if fsdp.offload_params else ""
        return _joined(f"FSDP {fsdp.version}", f"sharding {fsdp.sharding}", away)
    return {"ddp": "DDP", "none": "none: one process"}[engine]


def _checkpointing(plan: Plan) -> str:
    chosen = plan.activation_checkpointing
    return _joined(
        {"none": "none", "layer": "each layer"}[chosen.mode],
        f"{chosen.segment} together" if chosen.segment > 1 else "",
        f"all but {chosen.gap} between" if chosen.gap else "",
        "kept in host RAM" if chosen.offload else "",
    )


def _micro(plan: Plan) -> str:
    accumulation = plan.batch.accumulation
    several = f"{accumulation} accumulated" if accumulation > 1 else ""
    return _joined(f"{plan.batch.micro} a device", several)


def _global(plan: Plan) -> str:
    return f"{_some(plan.batch.global_, 'sample')} a step"


def _saving(plan: Plan) -> str:
    every, kept = plan.schedule.save_steps, plan.schedule.keep_checkpoints
    often = "after each epoch" if every is None else f"every {_some(every, 'step')}"
    return _joined(often, "all kept" if kept is None else f"last {kept} kept")


def _evaluating(plan: Plan) -> str:
    every = plan.schedule.evaluation_steps
    made = "" if plan.evaluation.predictions == "loss" else f"makes {plan.evaluation.predictions}"
    return _joined("never" if every is None else f"every {_some(every, 'step')}", made)


def _plainly(slot: str) -> Callable[[Plan], str]:
    return lambda plan: show(slot, plan[slot])


def _unless(slot: str, *values: object) -> Callable[[Plan], bool]:
    """Whether a slot's value is none of `values`, for which there is nothing to show."""
    return lambda plan: plan[slot] not in values


def _other(slot: str, weight: int, *values: object) -> Topic:
    """A topic that matters unless the slot has one of `values`, showing the plain value."""
    return Topic(slot, weight, _unless(slot, *values), _plainly(slot))


TOPICS: Final = (
    _other("devices.visible", 60, ()),
    Topic("objective.kind", 95, _unless("objective.kind", "sft"), _objective),
    _other("objective.reference", 70, "none"),
    _other("ppo.critic", 71, ""),
    _other("ppo.kl", 69, "none"),
    Topic("generation.engine", 85, _unless("generation.engine", "none"), _generation),
    Topic("data.images", 75, _sees, _images),
    Topic("quantization.format", 90, _unless("quantization.format", "none"), _quantization),
    Topic("adapter.rank", 80, _is_lora, _adapter),
    Topic("adapter.targets", 55, _is_lora, _targets),
    _other("adapter.also_train", 65, ()),
    _other("adapter.frozen", 65, ()),
    Topic("precision.compute", 88, _always, _precision),
    _other("precision.deprecated_fp16", 50, False),
    Topic("attention.implementation", 30, _always, _plainly("attention.implementation")),
    _other("loss.path", 45, "full"),
    _other("data.packing", 50, False),
    Topic("parallel.engine", 100, _always, _engine),
    _other("parallel.tensor", 75, 1),
    _other("parallel.sequence", 75, 1),
    _other("zero.offload_optimizer", 78, "none"),
    _other("zero.offload_param", 79, "none"),
    Topic("activation_checkpointing.mode", 92, _always, _checkpointing),
    Topic("batch.micro", 98, _always, _micro),
    Topic("batch.global", 82, _always, _global),
    Topic("optimizer.name", 72, _always, _optimizer),
    Topic("optimizer.learning_rate", 84, _always, _rate),
    _other("schedule.warmup_steps", 25, 0, None),
    Topic("schedule.save_steps", 62, _always, _saving),
    Topic("schedule.evaluation_steps", 40, _unless("schedule.evaluation_steps", None), _evaluating),
)
"""In the order in which they are shown."""


_MOST: Final = 12
"""The most decisions on a screen."""
_NAME, _VALUE = 30, 33
"""Columns of a slot's path and of its value, each including its gap."""
_REASON: Final = WIDTH - 2 - _NAME - _VALUE


class Row(Struct, frozen=True):
    """One decision in words."""

    slot: str
    weight: int
    value: str
    reason: str
    is_set: bool
    """Whether the user set the value."""


def decision_lines(planned: Planned, pen: Pen, room: int) -> Iterator[str]:
    """The most important decisions in at most `room` lines, those that the user set first."""
    if planned.plan is None:
        return
    topics = [topic for topic in TOPICS if topic.matters(planned.plan)]
    rows = _weightiest([_row(topic, planned) for topic in topics], min(_MOST, room - 3))
    own, others = [row for row in rows if row.is_set], [row for row in rows if not row.is_set]
    more = _more_pins(planned, own)
    spare = room - len(rows) - bool(own or more) - bool(others) - bool(more)
    told = [line for row in own for line in _lines(row, row.reason, pen, 2)]
    if len(told) > len(own) + spare:
        told = [line for row in own for line in _lines(row, row.reason, pen, 1)]
    if own or more:
        yield from (pen.paint("bold", "you set"), *told, *more)
    if others:
        yield pen.paint("bold", "decided for you")
        yield from _decided(others, pen, spare - len(told) + len(own))


def _weightiest(rows: Sequence[Row], most: int) -> list[Row]:
    """The `most` rows with the greatest weight, in their original order."""
    kept = sorted(rows, key=lambda row: -row.weight)[: max(0, most)]
    return [row for row in rows if row in kept]


def _row(topic: Topic, planned: Planned) -> Row:
    plan, winner = planned.plan, planned.ledger.winner(topic.slot)
    if plan is None or winner is None:
        raise LookupError(topic.slot)
    own = is_set(winner, planned)
    reason = place_said(winner, planned) if own else winner.reason
    return Row(topic.slot, topic.weight, printable(topic.words(plan)), printable(reason), own)


def _more_pins(planned: Planned, shown: Sequence[Row]) -> list[str]:
    """A line with the number of slots that the user pinned besides those shown."""
    told = {row.slot for row in shown}
    pins = [each for each in planned.ledger.winners() if each.rank is Rank.PIN]
    count = sum(is_set(each, planned) and each.slot not in told for each in pins)
    return [f"  and pins of {count} more slot{'' if count == 1 else 's'}"] if count else []


def _decided(rows: Sequence[Row], pen: Pen, spare: int) -> Iterator[str]:
    """The lines of rows; a reason gets a second line as long as there are lines to spare."""
    before = ""
    for row in rows:
        reason = "as above" if row.reason == before else row.reason
        lines = _lines(row, reason, pen, 2 if spare > 0 else 1)
        before, spare = row.reason, spare - len(lines) + 1
        yield from lines


def _lines(row: Row, reason: str, pen: Pen, most: int) -> list[str]:
    first, *more = pen.wrapped(reason, _REASON, most)
    value = pen.shortened(row.value, _VALUE - 2)
    line = f"  {row.slot:<{_NAME}}{pen.paint('bold', f'{value:<{_VALUE}}')}{first}".rstrip()
    return [line, *(" " * (2 + _NAME + _VALUE) + each for each in more)]
