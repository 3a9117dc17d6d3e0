"""From arguments to loaded specs, requested targets and policies."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from tunec.compiler.cli.session import Misuse, Registry, Session
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import Planned, plan
from tunec.compiler.frontend.load import Loaded, load_spec
from tunec.compiler.requirements import Asked, together


def load(spec: str, options: Namespace, session: Session) -> Loaded:
    """Read a spec with the command line's overrides."""
    return load_spec(
        Path(spec),
        overrides=options.overrides,
        hardware=options.hardware,
        targets=session.registry.names(),
        allow_outside=options.allow_outside,
    )


def asked_targets(names: Sequence[str], loaded: Loaded, session: Session) -> tuple[Asked, ...]:
    """The targets of the command line, or else of the spec; Misuse for an unknown name."""
    wanted = names or (loaded.spec.targets if loaded.spec else ())
    try:
        return targets_for(session.registry, wanted, loaded)
    except LookupError as unknown:
        raise Misuse(str(unknown.args[0])) from None


def targets_for(registry: Registry, names: Sequence[str], loaded: Loaded) -> tuple[Asked, ...]:
    """Targets by name, in the installed versions; LookupError for an unknown name."""
    return together(registry.resolve, names, loaded.software)


def planned(options: Namespace, session: Session) -> Planned:
    """Load and plan the one spec of a command."""
    loaded = load(options.spec, options, session)
    return plan(loaded, asked_targets(options.targets, loaded, session))


def judged(
    planned: Planned, options: Namespace
) -> tuple[tuple[Diagnostic, ...], Mapping[str, str]]:
    """Findings of the command line's policies in a plan, and the texts that they point into."""
    found: list[Diagnostic] = []
    sources: dict[str, str] = {}
    for name in options.policies:
        from tunec.compiler.review.policy import judge, load_policy

        rules = load_policy(Path(name))
        found += (*rules.faults, *judge(planned, rules))
        sources |= rules.document.sources
    return tuple(found), sources
