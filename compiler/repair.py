"""What would make a spec fit: changes of intent, each tried by running the passes again."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.selection import Selection, select
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.facts import Facts
from tunec.compiler.gather import devices_of
from tunec.compiler.ir.kept import Kept
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.plan import Draft
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.passes.fit import search
from tunec.compiler.passes.fit.fit import GROUPS, POSED_OF, problem_of
from tunec.compiler.passes.pipeline import PIPELINE
from tunec.schemas.hardware.catalogue import UnknownName, cluster
from tunec.schemas.hardware.profile import Cluster, Device
from tunec.schemas.shape import Shape
from tunec.schemas.spec import DeviceChoice, Lora, Method, Qlora, Spec


@dataclass(frozen=True, slots=True)
class Repair:
    """A change of intent; `apply` returns the changed facts, or None where it makes no sense."""

    title: str
    apply: Callable[[Facts], Facts | None]


Judge = Callable[[Facts], bool]
"""Whether the plan of some facts, which fits, is one that the asked targets can say."""


def repairs(
    facts: Facts, found: Iterable[Diagnostic], is_taken: Judge = lambda _: True
) -> Iterator[Diagnostic]:
    """Add to each 'nothing fits' the changes that were tried and make it fit."""
    for each in found:
        if each.id == "E0701":
            yield replace(each, help=_help(tuple(working_repairs(facts, is_taken))))
        else:
            yield each


def _help(working: tuple[str, ...]) -> str:
    if not working:
        return "no change of method, sequence or hardware was found that makes it fit"
    return "each of these was planned and fits: " + "; ".join(working)


def working_repairs(facts: Facts, is_taken: Judge = lambda _: True) -> Iterator[str]:
    """Titles of changes that make the spec fit: of each kind the smallest, verified by the search.

    Two changes of intent together are tried only where no single one is enough.
    """
    intent = _intent(facts)
    kinds = (*intent, *_pins(facts), *_groups(facts))
    works = partial(_works, facts, is_taken)
    singles = [title for kind in kinds for title in _smallest(kind, works)]
    pairs = (_both(a, b) for some, more in combinations(intent, 2) for a in some for b in more)
    yield from singles or _first(pairs, works)
    for kind in _hardware(facts):
        yield from _first(kind, works)


def _first(kind: Iterable[Repair], works: Callable[[Repair], bool]) -> list[str]:
    """The title of the first repair of a kind that works, if one does."""
    return next(([each.title] for each in kind if works(each)), [])


def _smallest(kind: Sequence[Repair], works: Callable[[Repair], bool]) -> list[str]:
    """The same for a kind each of whose repairs frees more than the ones before it."""
    if not kind or not works(kind[-1]):
        return []
    return _first(kind[:-1], works) or [kind[-1].title]


def _works(facts: Facts, is_taken: Judge, repair: Repair) -> bool:
    changed = repair.apply(facts)
    return changed is not None and fits(changed) and is_taken(changed)


def _both(first: Repair, second: Repair) -> Repair:
    def apply(facts: Facts) -> Facts | None:
        changed = first.apply(facts)
        return None if changed is None else second.apply(changed)

    return Repair(f"{first.title} and {second.title}", apply)


def fits(facts: Facts) -> bool:
    """Whether the passes up to the search find a plan without an error."""
    if facts.needs:
        return _fits(facts)
    return _FITS.of(facts.told(_KNOWN), facts.pinned_values(SLOTS), partial(_fits, facts))


_BEFORE: Final = PIPELINE[: next(at for at, each in enumerate(PIPELINE) if each.decides == GROUPS)]
"""The passes that decide what the search leaves as it is."""
_KNOWN: Final = tuple(sorted({*POSED_OF, *(path for each in _BEFORE for path in each.knows or ())}))
"""The facts on which it rests whether a plan is found, besides pins."""
_FITS: Final = Kept[bool](1024)


def _fits(facts: Facts) -> bool:
    draft = Draft({})
    for each in _BEFORE:
        facts = facts.informed(draft)
        outcome, groups = each.decide(facts, draft)
        if any(fault.severity == "error" for fault in outcome.diagnostics):
            return False
        draft = draft.with_groups(groups)
    return search.fits(problem_of(facts.informed(draft), draft))


def _with(facts: Facts, field: str, change: Callable[..., Shape], *to: Hashable) -> Facts:
    """The facts with a field of the spec changed, to the same object wherever it was the same."""
    here: Shape = getattr(facts.spec, field)
    changed = _CHANGED.of((here,), (change, to), lambda: change(here, *to))
    return replace(facts, spec=facts.spec.model_copy(update={field: changed}))


_CHANGED: Final = Kept[Shape](256)


def _updated(intent: Shape, change: tuple[str, Any]) -> Shape:
    return intent.model_copy(update=dict([change]))


def _lora_instead(facts: Facts) -> Facts | None:
    if facts.spec.method.full is None:
        return None
    return _with(facts, "method", _lora)


def _lora(_: Method) -> Method:
    return Method(lora=Lora())


def _qlora_instead(facts: Facts) -> Facts | None:
    return None if facts.spec.method.qlora is not None else _with(facts, "method", _qlora)


def _qlora(method: Method) -> Method:
    lora = method.lora or method.int8_lora
    options = lora.model_dump(exclude_unset=True) if lora else {}
    return Method(qlora=Qlora(**options))


def _deprecated_fp16(facts: Facts) -> Facts | None:
    intent = facts.spec.precision
    old = any((d.compute_capability or (9, 0)) < (7, 0) for d in facts.devices.values())
    if intent.deprecated_fp16 or not old:
        return None
    return _with(facts, "precision", _updated, ("deprecated_fp16", True))


def _casting_deepspeed(facts: Facts) -> Facts | None:
    """An engine under which ZeRO-3 trains adapters in fp16, with its loss scaled (`fit/states`)."""
    method, asked = facts.spec.method, facts.versions.get("deepspeed")
    if method.lora is None or (asked is not None and Version(asked) <= Version(_CASTING)):
        return None
    return replace(facts, versions={**facts.versions, "deepspeed": _CASTING})


_CASTING = "0.19.1"


def _shorter(facts: Facts) -> tuple[Repair, ...]:
    """Shorter samples, down to an eighth of what the spec says."""
    sequence = facts.spec.data.sequence or 0
    parts = ((3, 4), (1, 2), (1, 4), (1, 8)) if sequence >= _SHORTEST else ()
    return tuple(_sequence(sequence * some // of) for some, of in parts)


_SHORTEST = 64
"""Tokens of a sample below which nothing shorter is offered."""


def _sequence(shorter: int) -> Repair:
    def apply(facts: Facts) -> Facts | None:
        return _with(facts, "data", _updated, ("sequence", shorter))

    return Repair(f"data.sequence: {shorter}", apply)


def _without_budget(of: str) -> Callable[[Facts], Facts | None]:
    def apply(facts: Facts) -> Facts | None:
        if getattr(facts.spec.budget, of) is None:
            return None
        return _with(facts, "budget", _updated, (of, None))

    return apply


_QLORA = Repair("method: qlora (nf4)", _qlora_instead)
_FP16 = Repair(
    "precision: {deprecated_fp16: true} (sets DS_ALLOW_DEPRECATED_FP16=1)", _deprecated_fp16
)

_CHANGES: tuple[tuple[Repair, ...], ...] = (
    (_FP16,),
    (Repair(f"software: {{deepspeed: {_CASTING}}} (makes adapters fp16)", _casting_deepspeed),),
    (Repair("method: lora", _lora_instead),),
    (_QLORA,),
    (_both(_QLORA, _FP16),),
)


def _intent(facts: Facts) -> tuple[tuple[Repair, ...], ...]:
    """Changes of intent by kind, the smallest of each kind first."""
    device = Repair("the whole device (no budget.gpu_memory)", _without_budget("gpu_memory"))
    host = Repair("the whole host (no budget.host_memory)", _without_budget("host_memory"))
    return ((device,), (host,), _shorter(facts), *_CHANGES)


def _pins(facts: Facts) -> list[list[Repair]]:
    """Each pin of the spec given up."""
    paths = [path for path, pin in facts.pins.items() if pin.author == "spec"]
    return [[Repair(f"no pin.{path}", _without_pin(path))] for path in paths]


def _without_pin(path: str) -> Callable[[Facts], Facts]:
    def apply(facts: Facts) -> Facts:
        pins = {slot: pin for slot, pin in facts.pins.items() if slot != path}
        return replace(facts, pins=pins)

    return apply


def _groups(facts: Facts) -> Iterator[list[Repair]]:
    """Sequences or layers that several ranks of a node share, the fewest first."""
    devices = facts.cluster.nodes[0].accelerators[0].count
    ways = [each for each in (2, 4, 8) if devices % each == 0]
    for slot in ("parallel.sequence", "parallel.tensor"):
        yield [Repair(f"pin: {{{slot}: {each}}}", _with_pin(slot, each)) for each in ways]


def _with_pin(path: str, value: int) -> Callable[[Facts], Facts | None]:
    def apply(facts: Facts) -> Facts | None:
        if path in facts.pins:
            return None
        pin = Definition(path, value, Rank.PIN, "spec", "offered")
        return replace(facts, pins={**facts.pins, path: pin})

    return apply


def _hardware(facts: Facts) -> tuple[list[Repair], list[Repair]]:
    """More of the same devices, and one larger device."""
    group = facts.cluster.nodes[0].accelerators[0]
    more = [f"{group.device}-x{group.count * factor}" for factor in (2, 4, 8)]
    larger = ("rtx-3090-x1", "v100-32g-x1", "a100-40g-x1", "a100-80g-x1", "h200-x1", "a100-80g-x8")
    return (
        [Repair(f"hardware: {name}", _on(name)) for name in more],
        [Repair(f"hardware: {name}", _on(name)) for name in larger],
    )


def _on(name: str) -> Callable[[Facts], Facts | None]:
    def apply(facts: Facts) -> Facts | None:
        try:
            other, devices, selection = _selected(name, facts.spec.devices)
        except UnknownName:
            return None
        spec: Spec = facts.spec.model_copy(update={"hardware": name})
        return replace(facts, spec=spec, cluster=other, devices=devices, selection=selection)

    return apply


@lru_cache(maxsize=1024)
def _selected(name: str, choice: DeviceChoice) -> tuple[Cluster, dict[str, Device], Selection]:
    """A cluster of the catalogue with its devices, and those of them that are used.

    They are the same when asked again, so that passes need not run again which know no more.
    """
    other = cluster(name)
    devices = devices_of(other)
    return other, devices, select(other, devices, choice)
