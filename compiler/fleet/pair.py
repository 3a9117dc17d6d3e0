"""One pair of a fleet: planned, written out, and reduced to its line of the lock."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import Planned, header_of, plan
from tunec.compiler.fleet.emission import Emissions
from tunec.compiler.fleet.inputs import Reader
from tunec.compiler.fleet.lock import STAGED, Inputs, Locked
from tunec.compiler.fleet.selection import Site
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.ir.show import plain
from tunec.compiler.locate import locate
from tunec.compiler.requirements import Asked
from tunec.compiler.review.outcome import Outcome, Pair, outcome_of
from tunec.compiler.review.policy import Rules, judge

Asking = Callable[[Sequence[str], Loaded], tuple[Asked, ...]]
"""Targets by name for a loaded spec; LookupError for a name that is none."""


@dataclass(frozen=True, slots=True)
class Built:
    """A finished pair, with what was said about it."""

    locked: Locked
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """Whether it fits, and every file was written."""
        return not any(each.severity == "error" for each in self.diagnostics)


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds pairs below a directory; one a process."""

    reader: Reader
    folder: Path
    asking: Asking
    rules: tuple[Rules, ...]
    emissions: Emissions = field(default_factory=Emissions)

    def inputs(self, spec: str, site: Site) -> Inputs:
        """The digests of a pair, without planning it."""
        loaded = self.reader.loaded(spec, site)
        return self.reader.inputs(spec, site, loaded, self._asked(loaded))

    def build(self, spec: str, site: Site) -> Built:
        """Compile a pair and write its files, each of them whole or not at all."""
        loaded = self.reader.loaded(spec, site)
        asked = self._asked(loaded)
        planned = plan(loaded, asked)
        texts, unsaid = self._texts(spec, planned, loaded, asked)
        judged = (d for rules in self.rules for d in judge(planned, rules))
        found = (*planned.diagnostics, *unsaid, *judged)
        texts = {} if _has_errors(found) else texts
        pair = Pair(spec, site.name)
        for name, text in texts.items():
            write(self.folder / spec / site.name / name, text)
        outcome = outcome_of(planned, pair)
        locked = Locked(
            pair,
            self.reader.inputs(spec, site, loaded, asked),
            {name: sha256(text.encode()).hexdigest() for name, text in texts.items()},
            summary_of(outcome, found),
            {slot: plain(value) for slot, value in outcome.values.items()},
        )
        return Built(locked, found, loaded.sources)

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
        return texts, tuple(found)

    def _asked(self, loaded: Loaded) -> tuple[Asked, ...]:
        named = self.reader.selection.fleet.targets
        return self.asking(named or (loaded.spec.targets if loaded.spec else ()), loaded)


def _has_errors(found: Sequence[Diagnostic]) -> bool:
    return any(each.severity == "error" for each in found)


def write(path: Path, text: str) -> None:
    """Put a text in its place by a rename, so that a file is the old one or the new one."""
    content = text.encode()
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
    elif _is(path, content):
        return
    staged = path.with_name(f".{path.name}.{os.getpid()}{STAGED}")
    staged.write_bytes(content)
    if text.startswith("#!"):
        staged.chmod(0o755)
    staged.replace(path)


def _is(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False


def summary_of(outcome: Outcome, found: Sequence[Diagnostic]) -> dict[str, Any]:
    """The row of a pair in the summary: what fits, how, and how fast."""
    errors = [each.message for each in found if each.severity == "error"]
    if outcome.needs is None or errors:
        return {"fits": False, "why": errors[0] if errors else ""}
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
