"""`tunec choose`: one spec on many clusters, by cost, time or energy."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tunec.compiler.choose.grounds import Ground, Grounds, grounds, options
from tunec.compiler.choose.options import has_length
from tunec.compiler.choose.ranking import result_of
from tunec.compiler.choose.screen import choice_text
from tunec.compiler.cli.choose_arguments import Combination, Read, read, without_length
from tunec.compiler.cli.inputs import asked_targets
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session, is_colored
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.load import Loaded, load_spec
from tunec.compiler.requirements import Asked
from tunec.compiler.review.screen.pen import Pen
from tunec.compiler.writing import write_all
from tunec.schemas.choice import Choice, Option, Result

_STDOUT: Final = "-"
Said = tuple[Sequence[Diagnostic], Mapping[str, str]]
"""Diagnostics, and the texts that they point into."""


def run(options: Namespace, session: Session) -> int:
    """Plan the spec on every cluster, and print the results."""
    if options.spec is None:
        taken = ": --hardware takes every word behind it" if options.hardware else ""
        raise Misuse(f"name the spec first, `tunec choose SPEC ...`{taken}")
    asked = read(options)
    found = grounds(options.hardware, lambda hardware: _loaded(options, session, hardware))
    settled = [_settled(found, each) for each in asked.combinations]
    faults = [*_faults(found), *(one for each in settled for one in _faults(each, found))]
    broken = bool(asked.diagnostics) or not all(each.grounds for each in (found, *settled))
    if broken:
        return _refuse([(asked.diagnostics, asked.sources), *faults], session)
    for diagnostics, sources in faults:
        session.diagnose(diagnostics, sources)
    tried = [_tried(each, asked, options, session) for each in settled]
    limited = asked.asking.within is not None or asked.asking.budget is not None
    if limited and not any(has_length(each) for each in tried) and any(e.fits for e in tried[0]):
        fault, sources = without_length(options)
        return session.refuse((fault,), sources)
    results = tuple(
        result_of(each, asked.asking, dict(values))
        for each, values in zip(tried, asked.combinations, strict=True)
    )
    return _shown(_choice(found, options, asked, results, faults), asked, options, session)


def _loaded(options: Namespace, session: Session, hardware: str) -> Loaded:
    return load_spec(
        Path(options.spec),
        overrides=options.overrides,
        hardware=hardware,
        targets=session.registry.names(),
        allow_outside=options.allow_outside,
    )


def _settled(found: Grounds, values: Combination) -> Grounds:
    """The clusters for one combination of swept values."""
    return found.settled([f"{path}={value}" for path, value in values])


def _faults(found: Grounds, before: Grounds | None = None) -> list[Said]:
    """Faults of a spec, unless an earlier combination had them."""
    known = {d for said, _ in (before.said if before else ()) for d in said}
    return [([d for d in said if d not in known], sources) for said, sources in found.said]


def _refuse(said: Sequence[Said], session: Session) -> int:
    """Report every fault, in whichever text it is."""
    told: dict[Diagnostic, None] = {}
    for diagnostics, sources in said:
        fresh = [each for each in diagnostics if each not in told]
        told |= dict.fromkeys(fresh)
        session.diagnose(fresh, sources)
    if session.format == "json":
        session.json({"diagnostics": [each.to_json() for each in told]})
    return INPUT


def _tried(found: Grounds, asked: Read, given: Namespace, session: Session) -> list[Option]:
    def targets(loaded: Loaded) -> Sequence[Asked]:
        return asked_targets(given.targets, loaded, session)

    return [one for each in found.grounds for one in options(each, asked.asking, targets)]


def _choice(
    found: Grounds,
    given: Namespace,
    asked: Read,
    results: tuple[Result, ...],
    said: Sequence[Said],
) -> Choice:
    asking = asked.asking
    return Choice(
        spec=_name(found.grounds[0]),
        everywhere=not given.hardware,
        by=asking.by,
        market=asking.wanted.market,
        within_seconds=asking.within,
        budget_dollars=asking.budget,
        providers=asking.wanted.providers,
        regions=asking.wanted.regions,
        results=results,
        diagnostics=tuple(d.to_json() for diagnostics, _ in said for d in diagnostics),
    )


def _name(ground: Ground) -> str:
    return ground.loaded.spec.name if ground.loaded.spec else ""


def _shown(choice: Choice, asked: Read, options: Namespace, session: Session) -> int:
    """Print the choice, and write its page if one is requested."""
    if options.output is not None:
        from tunec.compiler.choose.page import choice_page

        text = choice_page(choice, asked.asking)
        if options.output == _STDOUT:
            session.result(text)
        else:
            write_all({Path(options.output): text})
    found: dict[str, Any] = choice.model_dump(mode="json")
    if session.format == "json":
        session.json(found)
    elif options.output != _STDOUT:
        pen = Pen(is_colored(session.stdout), session.draws)
        session.result(choice_text(choice, asked.asking, pen, every=options.all))
    return OK if any(each.best for each in choice.results) else INPUT
