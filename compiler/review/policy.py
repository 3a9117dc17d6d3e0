"""Judges a plan by a policy: each broken rule becomes a diagnostic, like a lint's."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import did_you_mean, joined, nearest
from tunec.compiler.driver import Planned
from tunec.compiler.facts import Facts
from tunec.compiler.frontend.document import Document, load_document
from tunec.compiler.frontend.faults import error
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.values import is_same, show
from tunec.compiler.locate import locate
from tunec.compiler.review.outcome import Needs, Pair, outcome_of
from tunec.schemas.policy import MEASURES, Condition, Other, Policy, PolicyRule, Range, Where
from tunec.schemas.units import NotAQuantity, format_bytes, parse_bytes, parse_share

_PIN: Final = "pin"


class Rules(Struct, frozen=True):
    """A policy that was read, with the places of its rules, or with its errors."""

    document: Document[Policy]
    faults: tuple[Diagnostic, ...]

    @property
    def policy(self) -> Policy | None:
        """The policy; None if the file has any error."""
        return None if self.faults else self.document.value


def load_policy(path: Path) -> Rules:
    """Read a policy file; report malformed text, unknown names and invalid quantities."""
    document = load_document(path, Policy)
    faults = document.diagnostics
    if document.value is not None:
        faults = (*faults, *_faults(document.value, document))
    return Rules(document, faults)


def judge(planned: Planned, rules: Rules) -> tuple[Diagnostic, ...]:
    """The rules that a plan breaks; empty if there is no plan or no policy."""
    if rules.policy is None or planned.plan is None or planned.facts is None:
        return ()
    facts = _Judged(planned, planned.facts)
    found = [
        diagnostic
        for at, rule in enumerate(rules.policy.rules)
        if facts.is_meant(rule.on)
        for diagnostic in facts.broken(rule, rules.document.spans.get(f"rules[{at}]"))
    ]
    return locate(found, planned.loaded)


# ── the policy's own faults ──────────────────────────────────────────────────────────────────────


def _faults(policy: Policy, document: Document[Policy]) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for at, rule in enumerate(policy.rules):
        here = f"rules[{at}]"
        if rule.name in seen:
            yield error(
                "E0313",
                f"two rules are called `{rule.name}`",
                document.spans.get(f"{here}.name"),
                help="give each rule a name of its own",
            )
        seen.add(rule.name)
        for field, conditions in ((".on.plan", rule.on.plan), (".require", rule.require)):
            for name, condition in conditions.items():
                span = document.spans.get(f"{here}{field}.{name}")
                yield from _wrong_condition(name, condition, span)


def _wrong_condition(name: str, condition: Condition, span: Any) -> Iterator[Diagnostic]:
    known = (*SLOTS, *MEASURES)
    if name not in known:
        yield error(
            "E0313",
            f"`{name}` is neither a slot nor a measure",
            span,
            label="not known",
            notes=(f"measures are {joined((f'`{each}`' for each in MEASURES), 'and')}",),
            help=did_you_mean(nearest(name, known)) or "`tunec catalog slots` lists the slots",
        )
        return
    try:
        _ends(name, condition)
    except NotAQuantity as fault:
        yield error("E0313", f"`{name}`: {fault}", span, label="not understood")


def _ends(name: str, condition: Condition) -> tuple[float, float]:
    if not isinstance(condition, Range):
        return float("-inf"), float("inf")
    low = float("-inf") if condition.from_ is None else _number(name, condition.from_)
    return low, float("inf") if condition.to is None else _number(name, condition.to)


def _number(name: str, amount: int | float | str) -> float:
    """An amount in the unit of the slot or measure that it is compared with.

    Raises NotAQuantity.
    """
    unit = MEASURES.get(name) or SLOTS[name].unit
    if unit == "bytes":
        amount = parse_bytes(amount)
    elif isinstance(amount, str):
        amount = parse_share(amount) if unit == "share" else parse_bytes(amount)
    return float(amount)


# ── judging ──────────────────────────────────────────────────────────────────────────────────────


class _Judged:
    """A plan as policy rules see it."""

    def __init__(self, planned: Planned, facts: Facts) -> None:
        self.spec = facts.spec
        self.cluster = facts.cluster
        self.pair = Pair(self.spec.name, self.cluster.name)
        outcome = outcome_of(planned, self.pair)
        self.values = {**outcome.values, **_measures(outcome.needs)}

    def is_meant(self, where: Where) -> bool:
        """Whether a rule's `on` selects this plan."""
        return (
            _matches(self.pair.spec, where.specs)
            and _matches(self.pair.cluster, where.clusters)
            and all(
                fnmatchcase(self.cluster.labels.get(label, ""), pattern)
                for label, pattern in where.labels.items()
            )
            and all(_holds(name, self.values[name], c) for name, c in where.plan.items())
        )

    def broken(self, rule: PolicyRule, span: Any) -> Iterator[Diagnostic]:
        """The requirements of a rule that the plan does not meet."""
        here = Label("the rule", span, primary=False)
        for name, condition in rule.require.items():
            value = self.values[name]
            if value is not None and not _holds(name, value, condition):
                yield Diagnostic(
                    rule.name,
                    rule.severity,
                    f"{name} is {_shown(name, value)} for {self.pair}, but the policy requires "
                    f"{_in_words(name, condition)}",
                    (Label("decided here", path=name), here),
                    (rule.because,),
                )
        yield from self._pins(rule, here)

    def _pins(self, rule: PolicyRule, here: Label) -> Iterator[Diagnostic]:
        if rule.pins is None:
            return
        for slot, pinned in self.spec.pin.items():
            if rule.pins == "forbidden" or not _has_reason(pinned):
                what = "is pinned" if rule.pins == "forbidden" else "is pinned without a reason"
                yield Diagnostic(
                    rule.name,
                    rule.severity,
                    f"{slot} {what}",
                    (Label("pinned here", path=f"{_PIN}.{slot}"), here),
                    (rule.because,),
                    help=None
                    if rule.pins == "forbidden"
                    else f"write `{slot}: {{value: ..., reason: ...}}`",
                )


def _has_reason(pinned: Any) -> bool:
    """Whether a pin is `{value, reason}`; frontend/pins.py ensures that the reason is text."""
    return isinstance(pinned, Mapping) and "reason" in pinned


def _measures(needs: Needs | None) -> dict[str, float | None]:
    if needs is None:
        return dict.fromkeys(MEASURES)
    return {
        "memory.required": needs.required,
        "memory.headroom": needs.headroom,
        "memory.headroom_share": needs.headroom / needs.budget,
        "host.required": needs.host_required,
        "time.step_seconds": needs.step_seconds,
        "time.tokens_per_second": needs.tokens_per_second,
        "cost.run": needs.run_cost,
    }


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _holds(name: str, value: Any, condition: Condition) -> bool:
    if isinstance(condition, Range):
        low, high = _ends(name, condition)
        return isinstance(value, int | float) and low <= value <= high
    if isinstance(condition, Other):
        return not _holds(name, value, condition.not_)
    if isinstance(condition, tuple):
        return any(is_same(value, each) for each in condition) or value == condition
    return is_same(value, condition)


def _in_words(name: str, condition: Condition) -> str:
    if isinstance(condition, Range):
        low, high = _ends(name, condition)
        least = "" if low == float("-inf") else f"at least {_shown(name, low)}"
        most = "" if high == float("inf") else f"at most {_shown(name, high)}"
        return " and ".join(part for part in (least, most) if part)
    if isinstance(condition, Other):
        return f"anything but {_in_words(name, condition.not_)}"
    if isinstance(condition, tuple):
        return joined((_shown(name, each) for each in condition), "or")
    return _shown(name, condition)


def _shown(name: str, value: Any) -> str:
    unit: Mapping[str, str] = MEASURES
    if unit.get(name) == "bytes":
        return format_bytes(value)
    if unit.get(name) == "share":
        return f"{value:.1%}"
    return show(name, value)
