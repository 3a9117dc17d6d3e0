"""The contract of a pass, and the `Scribe` that records its decisions."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from shlex import quote
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label, Severity
from tunec.compiler.facts import Facts
from tunec.compiler.ir.ledger import Alternative, Decision, Origin
from tunec.compiler.ir.plan import Draft, build_group
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.passes.fit.search import Answer
from tunec.schemas.caches import BoundedCache, cached
from tunec.schemas.shape import Shape


class Outcome(Struct, frozen=True):
    """The result of a pass: a value for each of its slots, and its diagnostics.

    Values are computed at once; reasons are only put into words when `decisions` is read.
    """

    values: Mapping[str, Any]
    """The value of each slot, before pins."""
    explain: Callable[[], Mapping[str, Decision]]
    diagnostics: tuple[Diagnostic, ...] = ()
    groups: Mapping[str, object] | None = None
    """The groups built from the values, if the pass has them already."""
    answer: Answer | None = None
    """The answer of the search, if the pass ran it."""

    @property
    def decisions(self) -> Mapping[str, Decision]:
        """Each slot's value with its reason, its origins and the alternatives that it beat."""
        return self.explain()


Decided = tuple[Outcome, Mapping[str, object]]
"""The outcome of a pass, and the groups that it decides with the pins applied."""

_DECIDED: Final = BoundedCache[Decided]("compiler.passes.contract.decided", 4096)
"""Outcomes of passes by their inputs."""


class SlotNotDecided(LookupError):
    """A pass decides a group but leaves out one of its slots."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(f"the pass {name} decides the group of the slot {path}, and not the slot")


class Pass(Struct, frozen=True):
    """One step of the pipeline. `reads` and `decides` name groups of slots."""

    name: str
    reads: tuple[str, ...]
    decides: tuple[str, ...]
    run: Callable[[Facts, Draft], Outcome]
    fact_inputs: tuple[str, ...] | None = None
    """Dotted paths of the facts that it reads besides pins; None: it may read any."""
    heeds: tuple[str, ...] = ()
    """Slots of other passes whose pins it reads, besides those of its own slots."""
    looks: tuple[str, ...] = ()
    """The only slots that it reads of the groups in `reads`; empty: it may read any of them."""

    def decide(self, facts: Facts, draft: Draft) -> Decided:
        """The outcome of the pass, and the groups that it decides.

        A pass is a pure function of its inputs. Most inputs are equal on many clusters, and in most
        of the changed specs that are tried, so the outcome is cached by them.
        """
        if self.fact_inputs is None:
            return self._decided(facts, draft)
        seen = _slots(self.looks)(draft) if self.looks else ()
        groups = () if self.looks else map(draft.groups.__getitem__, self.reads)
        inputs = (*groups, *facts.values_at(self.fact_inputs))
        equal = self.name, seen, facts.pinned_values(self.minded)
        return _DECIDED.of(inputs, equal, partial(self._decided, facts, draft))

    def _decided(self, facts: Facts, draft: Draft) -> Decided:
        outcome = self.run(facts, draft)
        return outcome, self.groups(outcome, facts)

    def groups(self, outcome: Outcome, facts: Facts) -> Mapping[str, object]:
        """The groups that an outcome of this pass decides, with the pins applied."""
        values = outcome.values
        pinned = {path: facts.pins[path].value for path in values.keys() & facts.pins.keys()}
        if outcome.groups is not None and all(_is(values[p], to) for p, to in pinned.items()):
            return outcome.groups
        values = {**values, **pinned} if pinned else values
        try:
            return {group: build_group(group, values) for group in self.decides}
        except KeyError as absent:
            raise SlotNotDecided(self.name, str(absent.args[0])) from None

    @property
    def minded(self) -> frozenset[str]:
        """The slots whose pins it reads."""
        return _minded(self.decides, self.heeds)

    @property
    def contract(self) -> str:
        """The first line of the pass's docstring: what it decides, and from what."""
        return (self.run.__doc__ or "").partition("\n")[0]


def _is(value: Any, other: Any) -> bool:
    """Whether two values are equal and of one type: 1 is neither True nor 1.0."""
    return type(value) is type(other) and bool(value == other)


@cached()
def _minded(groups: tuple[str, ...], heeds: tuple[str, ...]) -> frozenset[str]:
    return frozenset({*heeds, *(path for path, each in SLOTS.items() if each.group in groups)})


@cached()
def _slots(paths: tuple[str, ...]) -> Callable[[Draft], tuple[Any, ...]]:
    """A function that reads some slots of a draft, at least two."""
    return attrgetter(*(f"{SLOTS[path].group}.{SLOTS[path].attribute}" for path in paths))


class Option(Struct, frozen=True):
    """A possible value of a slot; `refused` says why it cannot be used."""

    value: Any
    reason: str
    refused: str | None = None
    rests: tuple[Origin, ...] = ()


_Why = tuple[str, tuple[Origin, ...], Sequence[Alternative]]
"""A reason, its origins, and the alternatives that were beaten."""


def as_given(intent: Shape, path: str, otherwise: str = "not given: the usual") -> str:
    """The reason for a value of the spec: it is written there, or it is the field's default."""
    here: Any = intent
    for name in path.split("."):
        if name not in here.model_fields_set:
            return otherwise
        here = getattr(here, name)
    return "as the spec has it"


class Scribe(Struct):
    """Collects one pass's decisions; each call returns the value in force, which may be a pin's."""

    facts: Facts
    values: dict[str, Any] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _whys: dict[str, _Why] = field(default_factory=dict)

    def say(
        self, slot: str, value: Any, reason: str, *rests: Origin, beat: Sequence[Alternative] = ()
    ) -> Any:
        """Decide a slot."""
        self.values[slot] = value
        self._whys[slot] = (reason, rests, beat)
        return self.facts.pinned(slot, value)

    def choose(
        self,
        slot: str,
        options: Sequence[Option],
        code: str,
        asked: Any = None,
        at: str = "",
        *,
        otherwise: str | None = None,
        setting: Callable[[Any], str] | None = None,
    ) -> Any:
        """Decide a slot: the requested or pinned value, else the first option that is not refused.

        `asked` is the value that the spec requests, and `at` its path there. If a requested or
        pinned value is refused, an error of `code` gives the reason; its help is the argument for
        the first possible option, or `otherwise`. `setting` converts a value to a `--set` argument,
        if that is not just the value of `at`.
        """
        wish, place = self.facts.pinned(slot, asked), self.place(slot, at)
        is_refused = wish is not None and _refused(options, wish) is not None
        if is_refused:
            others = [each for each in options if each.refused is None]
            hint = _hint(others[0], place, at, setting) if others else otherwise
            why = f"{slot} cannot be {wish}: {_refused(options, wish)}"
            self.error(code, why, place, help=hint)
        best = next((each for each in options if each.refused is None), None)
        if best is None:
            if not is_refused:
                self.error(code, f"no value is possible for {slot}", at, notes=_refusals(options))
            best = options[-1]
        taken = best if asked is None else _find(options, asked) or best
        beat = [Alternative(o.value, o.refused or o.reason) for o in options if o is not taken]
        reason = taken.reason if asked is None else f"the spec requests it: {taken.reason}"
        rests = (*taken.rests, Origin("spec", at)) if asked is not None else taken.rests
        return self.say(slot, taken.value, reason, *rests, beat=beat)

    def place(self, slot: str, at: str) -> str:
        """The place that sets a slot's value: its pin, or else the path in the spec."""
        return f"pin.{slot}" if slot in self.facts.pins else at

    def error(
        self,
        code: str,
        message: str,
        at: str,
        *,
        help: str | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """Report an error at a path of the spec."""
        self.report(code, "error", message, at, help=help, notes=notes)

    def report(
        self,
        id: str,
        severity: Severity,
        message: str,
        at: str,
        *,
        help: str | None = None,
        notes: Sequence[str] = (),
        label: str = "",
    ) -> None:
        """Report a diagnostic at a path of the spec; the driver finds the line."""
        labels = (Label(label, path=at),) if at else ()
        self.diagnostics.append(Diagnostic(id, severity, message, labels, tuple(notes), help))

    def outcome(self) -> Outcome:
        """The result of the pass."""
        explain = partial(_decisions, self.values, self._whys)
        return Outcome(self.values, explain, tuple(self.diagnostics))


def _decisions(values: Mapping[str, Any], whys: Mapping[str, _Why]) -> dict[str, Decision]:
    return {
        path: Decision(values[path], reason, rests, tuple(beat))
        for path, (reason, rests, beat) in whys.items()
    }


def _refused(options: Sequence[Option], wish: Any) -> str | None:
    """Why a requested value cannot be used."""
    option = _find(options, wish)
    return None if option is None else option.refused


def _hint(other: Option, place: str, at: str, setting: Callable[[Any], str] | None) -> str:
    """The argument for a value that can be used instead, with its reason."""
    said = setting(other.value) if setting and place == at else f"{place}={other.value}"
    return f"`--set {quote(said)}`: {other.reason}"


def _find(options: Sequence[Option], value: Any) -> Option | None:
    return next((option for option in options if option.value == value), None)


def _refusals(options: Sequence[Option]) -> list[str]:
    return [f"{option.value}: {option.refused}" for option in options]


@cached(1024)
def spec(path: str) -> Origin:
    """An origin in the spec."""
    return Origin("spec", path)


@cached(1024)
def slot(path: str) -> Origin:
    """An origin in an earlier decision."""
    return Origin("slot", path)


@cached(1024)
def device(name: str, field_path: str) -> Origin:
    """An origin in the device catalogue."""
    return Origin("device", f"{name}.{field_path}")


@cached(1024)
def model(path: str, note: str = "") -> Origin:
    """An origin in the model's card or config."""
    return Origin("model", path, note)
