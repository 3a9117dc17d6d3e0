"""Decisions, shown at the end of the lines that they follow from."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tunec.compiler.driver import Planned
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.values import show
from tunec.compiler.lsp import dialect
from tunec.compiler.lsp.analysis import Analysis
from tunec.compiler.review.outcome import expected_steps, needs_of
from tunec.compiler.review.screen.screen import duration
from tunec.schemas.source import Path
from tunec.schemas.units import format_bytes, format_count

Hint = tuple[int, str, str]
"""The line, the text at its end, and a longer text that is shown under the pointer."""
_MOST_TARGETS: Final = 4
_WORDS: Final = ("attention", "mlp", "all-linear")


def hints(analysis: Analysis) -> Iterator[Hint]:
    """The decisions for a spec, or the resolved value of each `auto` in a config, line by line."""
    if analysis.kind is None:
        yield from _automatic(analysis)
        return
    planned = analysis.planned
    if planned is None or analysis.tree is None:
        return
    for path, text in _TEXTS.items():
        node = analysis.tree
        for part in path:
            node = (node.child(part) or node) if node is not None else node
        told = text(planned) if node is not analysis.tree else ""
        if told and node.key_span is not None:
            is_flat = node.span.line == node.key_span.line
            line = node.span.end_line if is_flat else node.key_span.line
            yield line, told, "\n".join(_reasons(planned, path))
    yield from _versions(analysis)


def _versions(analysis: Analysis) -> Iterator[Hint]:
    """The release of each target that is named without one, if each target has its own line."""
    listed = analysis.tree.child("targets") if analysis.tree is not None else None
    if listed is None or listed.key_span is None:
        return
    by_name = {target.name: version for target, version in analysis.asked}
    for each in listed.items or ():
        if each.value in by_name and each.span.line != listed.key_span.line:
            yield each.span.line, f"@{by_name[each.value]}", ""


def _method(planned: Planned) -> str:
    plan = planned.plan
    if plan is None:
        return ""
    if plan.adapter.kind == "none":
        return f"{format_count(plan.adapter.trainable_parameters)} parameters are trained"
    return f"rank {plan.adapter.rank}, {_word(planned) or _modules(plan.adapter.targets)}"


def _word(planned: Planned) -> str:
    """The spec's word for the modules that get adapters; empty if the spec lists modules."""
    method = planned.facts.spec.method if planned.facts is not None else None
    named = (getattr(method, kind, None) for kind in ("lora", "qlora", "int8_lora"))
    word = next((each.targets for each in named if each is not None), None)
    return word if word in _WORDS else ""


def _modules(targets: str | tuple[str, ...]) -> str:
    if isinstance(targets, str):
        return targets
    more = len(targets) - _MOST_TARGETS
    return ", ".join(targets[:_MOST_TARGETS]) + (f" and {more} more" if more > 0 else "")


def _hardware(planned: Planned) -> str:
    """How devices share the work, how much of them it takes, and for how long."""
    plan, needs = planned.plan, needs_of(planned)
    if plan is None or needs is None:
        return "nothing fits" if planned.facts is not None else ""
    steps = expected_steps(plan)
    length = (
        duration(steps * needs.step_seconds) if steps else f"{duration(needs.step_seconds)} a step"
    )
    memory = _of(format_bytes(needs.required), format_bytes(needs.budget))
    return f"{_engine(plan)}, micro {plan.batch.micro}, {memory}, {length}"


def _of(used: str, budget: str) -> str:
    """`50.9 of 79.1 GiB`: the unit only once if both are the same."""
    unit = f" {budget.rpartition(' ')[2]}"
    return f"{used.removesuffix(unit)} of {budget}"


def _engine(plan: Plan) -> str:
    if plan.parallel.engine == "deepspeed":
        moved = " with offload" if plan.zero.offload_optimizer != "none" else ""
        return f"ZeRO {plan.zero.stage}{moved}"
    if plan.parallel.engine == "fsdp":
        return f"FSDP {plan.fsdp.sharding}"
    return {"none": "one process"}.get(plan.parallel.engine, plan.parallel.engine.upper())


def _batch(planned: Planned) -> str:
    plan = planned.plan
    if plan is None:
        return ""
    batch = plan.batch
    return f"{batch.global_} = {batch.micro} x {batch.accumulation} x {plan.parallel.data} devices"


def _model(planned: Planned) -> str:
    plan = planned.plan
    return f"{format_count(plan.model.parameters)} parameters" if plan is not None else ""


_TEXTS: Final[Mapping[Path, Callable[[Planned], str]]] = {
    ("model",): _model,
    ("method",): _method,
    ("batch",): _batch,
    ("hardware",): _hardware,
}
_SLOTS: Final[Mapping[Path, tuple[str, ...]]] = {
    ("method",): ("adapter.rank", "adapter.alpha", "adapter.targets"),
    ("batch",): ("batch.micro", "batch.accumulation", "batch.global"),
    ("hardware",): (
        "parallel.engine",
        "zero.stage",
        "batch.micro",
        "activation_checkpointing.mode",
    ),
}


def _reasons(planned: Planned, path: Path) -> Iterator[str]:
    for slot in _SLOTS.get(path, ()):
        winner = planned.ledger.winner(slot)
        if winner is not None:
            yield f"{slot} = {show(slot, winner.value)}: {winner.reason}"


def _automatic(analysis: Analysis) -> Iterator[Hint]:
    """The value that is filled in for each `auto` of a config, if it is known."""
    for run, document in dialect.documents(analysis):
        for path, place in document.found.items():
            if place.value == "auto":
                effective = run.effective(document.kind, path)
                if effective.known and effective.value not in ("auto", None):
                    yield place.span.end_line, str(effective.value), effective.by
