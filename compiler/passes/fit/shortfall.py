"""The report when no layout fits: how much memory is lacking, and which layout lacks least."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label, Term
from tunec.compiler.facts import Facts
from tunec.compiler.ir.ledger import Definition
from tunec.compiler.ir.values import show
from tunec.compiler.passes.fit.problem import Problem, Shape
from tunec.compiler.passes.fit.search import Answer, Verdict, describe
from tunec.schemas.units import format_bytes

_GIVER: Final = {"device": "a device", "host": "a node's host"}


class _Lack(Struct, frozen=True):
    """What the smallest batch of a shape lacks, on the devices or on the host."""

    of: str
    shape: Shape
    micro: int
    memory: Account
    required: int
    budget: int

    @property
    def terms(self) -> Mapping[str, int]:
        """The terms of the account, largest first; a device's margin comes last."""
        if self.of == "host":
            return self.memory.host.terms
        margin = {f"margin: {name}": value for name, value in self.memory.margin.items()}
        return {**self.memory.terms, **margin}


def infeasible(facts: Facts, problem: Problem, answer: Answer) -> Diagnostic:
    """Report by how much the nearest layout does not fit, with the sum; or why none can run."""
    lack = _nearest(problem, answer)
    if lack is None:
        return _no_layout(facts, problem, answer)
    largest, most = next(iter(lack.terms.items()))
    return Diagnostic(
        "E0701",
        "error",
        f"nothing fits: the smallest layout needs {format_bytes(lack.required)} "
        f"of the {format_bytes(lack.budget)} that {_GIVER[lack.of]} may give, "
        f"{format_bytes(lack.required - lack.budget)} too much",
        (Label("this much memory", path=_giver(facts, lack)),),
        (
            f"the smallest layout is {lack.shape}, micro batch {lack.micro}",
            f"its largest term is {largest}: {format_bytes(most)}",
            *_others(problem, answer, lack),
            *_left_out(facts, answer),
            *_pin_notes(facts),
        ),
        sum=tuple(Term(name, value) for name, value in lack.terms.items()),
    )


def _giver(facts: Facts, lack: _Lack) -> str:
    """The field of the spec that sets the limit: a budget, or else the hardware."""
    name = "gpu_memory" if lack.of == "device" else "host_memory"
    return "hardware" if getattr(facts.spec.budget, name) is None else f"budget.{name}"


def _nearest(problem: Problem, answer: Answer) -> _Lack | None:
    """The smallest lack on the devices; or on the host, if that layout lacks no less there."""
    nearest, short = answer.nearest, answer.nearest_on_host
    device = _lack(problem, nearest, "device") if nearest else None
    host = _lack(problem, short, "host") if short else None
    if device is None or host is None:
        return device or host
    return host if device.memory.host.peak_bytes >= host.required else device


def _lack(problem: Problem, verdict: Verdict, of: str) -> _Lack | None:
    layout = verdict.smallest
    if layout is None:
        return None
    memory = account(problem.workload, layout, problem.vendor)
    required = verdict.required or verdict.host_required
    budget = problem.budget if of == "device" else problem.host_budget or 0
    return _Lack(of, verdict.shape, layout.batch.micro, memory, required, budget)


def _others(problem: Problem, answer: Answer, lack: _Lack) -> Iterator[str]:
    """The smallest lack on the host if the devices lack memory, and on the devices otherwise."""
    each = answer.nearest_on_host if lack.of == "device" else answer.nearest
    if each is not None:
        yield f"{each.shape}: {describe(each, problem)}"


_SHARDING: Final = {"deepspeed": "DeepSpeed", "fsdp": "FSDP"}


def _left_out(facts: Facts, answer: Answer) -> Iterator[str]:
    """The sharding engines for which no layout can run, each with the reason."""
    if facts.selection.count == 1 or facts.pinned("parallel.engine", facts.spec.engine):
        return
    for engine, name in _SHARDING.items():
        of = [each for each in answer.verdicts if each.shape.engine == engine]
        plain = [each.refusal for each in of if each.shape.offload_param == "none"]
        if of and all(each.refusal for each in of):
            yield f"{name} was left out: {max(plain, key=plain.count)}"


def _pin_notes(facts: Facts) -> list[str]:
    """A note with the spec's pins, under which nothing fits."""
    given = [(path, pin.value) for path, pin in facts.pins.items() if pin.author == "spec"]
    pins = [f"{path} {show(path, value)}" for path, value in given]
    return [f"under these pins: {', '.join(pins)}"] if pins else []


def _no_layout(facts: Facts, problem: Problem, answer: Answer) -> Diagnostic:
    pinned = _bound_to(facts, problem)
    needs = any(map(_target, map(facts.pins.get, problem.pinned)))
    other = ", or compile to another target" if needs else ""
    return Diagnostic(
        "E0702",
        "error",
        "no layout can run" + (f" with {pinned}" if pinned else ""),
        tuple(Label("", path=path) for path in _givers(facts, problem)),
        tuple(_reasons(problem, answer)[:8]),
        help=f"change or remove what the reasons name{other}" if pinned else None,
    )


def _bound_to(facts: Facts, problem: Problem) -> str:
    """What limits the search: settings of the spec, and needs of each requested target."""
    by_target: dict[str, list[str]] = {"": []}
    for path, value in problem.pinned.items():
        target = _target(facts.pins.get(path))
        by_target.setdefault(target, []).append(f"{path} {show(path, value)}")
    said = [", ".join(by_target.pop(""))]
    needed = [f"{', '.join(each)}, which {target} needs" for target, each in by_target.items()]
    return "; ".join(each for each in (*said, *needed) if each)


def _target(pin: Definition | None) -> str:
    """The target that needs a pin; empty if the spec sets it."""
    origins = () if pin is None or pin.author != "target" else pin.rests
    return next((each.path for each in origins if each.kind == "target"), "")


def _givers(facts: Facts, problem: Problem) -> list[str]:
    """The paths in the spec that limit the search; its hardware if there are none."""
    pins = [f"pin.{path}" for path, _ in problem.pins if facts.pins[path].author == "spec"]
    asked = ["engine"] if facts.spec.engine else []
    return [*pins, *asked] or ["hardware"]


def _reasons(problem: Problem, answer: Answer) -> list[str]:
    """Why the layouts cannot run: each reason once, with the number of layouts."""
    ruled_out: dict[str, list[Shape]] = {}
    for verdict in answer.verdicts:
        ruled_out.setdefault(describe(verdict, problem), []).append(verdict.shape)
    return [f"{_first_of(every)}: {reason}" for reason, every in ruled_out.items()]


def _first_of(layouts: Sequence[Shape]) -> str:
    """One of the layouts, and the number of the others."""
    first, others = layouts[0], len(layouts) - 1
    if not others:
        return f"{first}"
    return f"{first} and {others} more layout{'s' if others > 1 else ''}"
