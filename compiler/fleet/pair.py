"""One pair of a fleet: planned, written out, and reduced to its line of the lock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, has_errors
from tunec.compiler.driver import Objecting, Planned, header_of, objected, plan
from tunec.compiler.fleet.emission import Emissions
from tunec.compiler.fleet.inputs import Reader
from tunec.compiler.fleet.lock import Locked, line_of, members
from tunec.compiler.fleet.selection import Site
from tunec.compiler.fleet.tree import put
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.ir.grouped import Grouped
from tunec.compiler.locate import locate
from tunec.compiler.requirements import Asked
from tunec.compiler.review.outcome import Outcome, Pair, outcome_of
from tunec.compiler.review.policy import Rules, judge


@dataclass(frozen=True, slots=True)
class Built:
    """A finished pair, as one process tells another of it."""

    pair: Pair
    line: str
    """Of the lock."""
    ok: bool
    """Whether it fits, and every file was written."""


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds pairs below a directory; one a process."""

    reader: Reader
    folder: Path
    rules: tuple[Rules, ...]
    emissions: Emissions = field(default_factory=Emissions)

    def build(self, spec: str, site: Site) -> Built:
        """Compile a pair and write its files, each of them whole or not at all.

        What would make a spec fit is not searched for: nobody reads it of a thousand clusters.
        """
        planned, texts, found = self._compiled(spec, site, repairing=False)
        broken = has_errors(found)
        texts = {} if broken else texts
        pair = Pair(spec, site.name)
        put(self.folder / spec / site.name, texts)
        outcome = outcome_of(planned, pair, with_traits=False)
        locked = Locked(
            pair,
            self.reader.inputs(spec, site),
            {name: sha256(text.encode()).hexdigest() for name, text in texts.items()},
            summary_of(outcome, found),
        )
        decided = planned.plan if outcome.fits else None
        decisions = _DECISIONS.texts(decided).values() if decided is not None else ()
        return Built(pair, line_of(locked, ",".join(decisions)), not broken)

    def explain(self, pair: Pair) -> tuple[tuple[Diagnostic, ...], Mapping[str, str]]:
        """All that there is to say of a pair, with what makes it fit; and the texts it is of."""
        site = next(each for each in self.reader.selection.sites if each.name == pair.cluster)
        planned, _, found = self._compiled(pair.spec, site, repairing=True)
        return found, planned.loaded.sources

    def _compiled(
        self, spec: str, site: Site, *, repairing: bool
    ) -> tuple[Planned, dict[str, str], tuple[Diagnostic, ...]]:
        """A pair's plan, the files that it comes to, and what is said of it."""
        loaded = self.reader.loaded(spec, site)
        asked = self.reader.asked(spec, site)
        planned = plan(loaded, asked, repairing=repairing)
        texts, unsaid = self._texts(spec, planned, loaded, asked)
        judged = (d for rules in self.rules for d in judge(planned, rules))
        return planned, texts, (*planned.diagnostics, *unsaid, *judged)

    def _texts(
        self, spec: str, planned: Planned, loaded: Loaded, asked: tuple[Asked, ...]
    ) -> tuple[dict[str, str], tuple[Diagnostic, ...]]:
        """The files of a plan by their path, and what no file can say."""
        if planned.plan is None or planned.facts is None:
            return {}, ()
        header = header_of(loaded, planned.plan)
        texts: dict[str, str] = {}
        found: list[Diagnostic] = []
        for each in asked:
            files, more = self.emissions.emit(
                spec, each, planned.plan, planned.facts.versions, header
            )
            texts |= {f"{each[0].name}/{file.name}": file.text for file in files}
            found += locate(more, loaded)
            if not has_errors(more):
                objections = self.emissions.objections(each, files, planned.facts, planned.plan)
                if objections:
                    found += objected(planned, each, files, _given(objections))
        return texts, tuple(found)


_DECISIONS: Final = Grouped(members)


def _given(objections: tuple[Diagnostic, ...]) -> Objecting:
    return lambda _asked, _files, _facts, _plan: objections


_LACKING: Final = "E07"
"""Codes of what does not fit; whatever else refuses a pair is no matter of size."""


def summary_of(outcome: Outcome, found: Sequence[Diagnostic]) -> dict[str, Any]:
    """The row of a pair in the summary: what fits, how, and how fast."""
    errors = [each for each in found if each.severity == "error"]
    if outcome.needs is None or errors:
        lacks = not errors or any(each.id.startswith(_LACKING) for each in errors)
        why = errors[0].message if errors else ""
        return {"fits": False, **({} if lacks else {"refused": True}), "why": why}
    value, needs = outcome.values, outcome.needs
    return {
        "fits": True,
        "precision": value["precision.compute"],
        "engine": value["parallel.engine"],
        "zero": value["zero.stage"],
        "offload": value["zero.offload_optimizer"],
        "checkpointing": value["activation_checkpointing.mode"],
        "micro": value["batch.micro"],
        "accumulation": value["batch.accumulation"],
        "global": value["batch.global"],
        "devices": value["parallel.world"],
        "required_bytes": needs.required,
        "budget_bytes": needs.budget,
        "tokens_per_second": round(needs.tokens_per_second, 3),
        "samples_per_second": round(needs.samples_per_second, 6),
        "cost_dollars": None if needs.run_cost is None else round(needs.run_cost, 2),
    }
