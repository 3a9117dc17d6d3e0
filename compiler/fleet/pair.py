"""One pair of a fleet: planned, written out, and reduced to its line of the lock."""

import gc
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from tunec.compiler.bundle import outset
from tunec.compiler.diagnostics.diagnostic import Diagnostic, has_errors
from tunec.compiler.driver import Planned, plan, written
from tunec.compiler.fleet.emission import Emissions
from tunec.compiler.fleet.inputs import Reader
from tunec.compiler.fleet.lock import LockedPair, line_of, members
from tunec.compiler.fleet.selection import Site
from tunec.compiler.fleet.summary import UNCHECKED
from tunec.compiler.fleet.tree import put
from tunec.compiler.ir.recollection import PlanRenderer
from tunec.compiler.review.outcome import Pair, needs_of
from tunec.compiler.review.policy import Rules, judge
from tunec.schemas.caches import forget


class BuiltPair(NamedTuple):
    """A finished pair."""

    line: str
    """Its line in the lock."""
    ok: bool
    """Whether it fits, and every file was checked by every rule and written."""
    strays: tuple[str, ...]
    """Files in its directory that belong to no pair."""


class Builder(Struct, frozen=True):
    """Builds pairs below a directory; there is one builder per process."""

    reader: Reader
    folder: Path
    rules: tuple[Rules, ...]
    emissions: Emissions = field(default_factory=Emissions)

    def build(self, spec: str, site: Site) -> BuiltPair:
        """Compile a pair and write its files, all or none.

        Changes that would make a spec fit are not searched for, since nobody would read them for a
        thousand clusters.
        """
        if self.emissions.begin(spec):
            _forget_plans()
        planned, texts, found = self._compiled(spec, site, repairing=False)
        broken = has_errors(found)
        texts = {} if broken else texts
        left_over = put(f"{self.folder}/{spec}/{site.name}", f"{self.folder}", texts)
        locked = LockedPair(
            Pair(spec, site.name),
            self.reader.inputs(spec, site),
            {name: sha256(text.encode()).hexdigest() for name, text in texts.items()},
            summary_of(planned, found),
        )
        is_checked = UNCHECKED not in locked.summary
        decided = planned.plan if planned.ok else None
        decisions = _DECISIONS.texts(decided).values() if decided is not None else ()
        return BuiltPair(line_of(locked, ",".join(decisions)), not broken and is_checked, left_over)

    def explain(self, pair: Pair) -> tuple[tuple[Diagnostic, ...], Mapping[str, str]]:
        """All that there is to say of a pair, with what makes it fit; and the texts it is of."""
        site = next(each for each in self.reader.selection.sites if each.name == pair.cluster)
        planned, _, found = self._compiled(pair.spec, site, repairing=True)
        return found, planned.loaded.sources

    def _compiled(
        self, spec: str, site: Site, *, repairing: bool
    ) -> tuple[Planned, dict[str, str], tuple[Diagnostic, ...]]:
        """A pair's plan, its files, and its diagnostics."""
        loaded = self.reader.loaded(spec, site)
        asked = self.reader.asked(spec, site)
        planned = plan(loaded, asked, repairing=repairing)
        root = Path(self.folder, spec, site.name)
        start = outset(loaded, root, self.reader.starter(spec, site))
        emitting = partial(self.emissions.emit, spec)
        compiled = written(planned, asked, start, emitting, self.emissions.objections)
        judged = (d for rules in self.rules for d in judge(planned, rules))
        return planned, compiled.texts(), (*compiled.diagnostics, *judged)


_MUCH: Final = 256
"""Results of a cache; a cache with fewer is not worth emptying."""
_YOUNG: Final = 0
"""The generation of objects created since the last collection."""


def _forget_plans() -> None:
    """Empty large caches of planning, and collect what the previous spec has left."""
    forget(_MUCH)
    gc.collect(_YOUNG)


_DECISIONS: Final = PlanRenderer("compiler.fleet.pair.decisions", members)


_LACKING: Final = "E07"
"""Prefix of codes for pairs that do not fit; other errors are not about size."""


def summary_of(planned: Planned, found: Sequence[Diagnostic]) -> dict[str, Any]:
    """The pair's row of the summary: whether it fits, how, and how fast it is."""
    errors = [each for each in found if each.severity == "error"]
    failed = sorted({each.id for each in found if each.is_bug})
    unchecked = {UNCHECKED: failed} if failed else {}
    plan, needs = planned.plan, needs_of(planned)
    if plan is None or needs is None or errors:
        lacks = not errors or any(each.id.startswith(_LACKING) for each in errors)
        why = errors[0].message if errors else ""
        return {"fits": False, **({} if lacks else {"refused": True}), "why": why, **unchecked}
    return {
        "fits": True,
        "precision": plan.precision.compute,
        "engine": plan.parallel.engine,
        "zero": plan.zero.stage,
        "offload": plan.zero.offload_optimizer,
        "checkpointing": plan.activation_checkpointing.mode,
        "micro": plan.batch.micro,
        "accumulation": plan.batch.accumulation,
        "global": plan.batch.global_,
        "devices": plan.parallel.world,
        "required_bytes": needs.required,
        "budget_bytes": needs.budget,
        "tokens_per_second": round(needs.tokens_per_second, 3),
        "samples_per_second": round(needs.samples_per_second, 6),
        "cost_dollars": None if needs.run_cost is None else round(needs.run_cost, 2),
        **unchecked,
    }
