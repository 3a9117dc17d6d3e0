"""From arguments to loaded specs and asked targets."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from tunec.compiler.cli.session import Misuse, Session
from tunec.compiler.driver import Asked, Planned, plan
from tunec.compiler.frontend.load import Loaded, load_spec


def load(spec: str, options: Namespace, session: Session) -> Loaded:
    """Read a spec with the command line's overrides put in."""
    return load_spec(
        Path(spec),
        overrides=options.overrides,
        hardware=options.hardware,
        targets=session.registry.names(),
    )


def asked_targets(names: Sequence[str], loaded: Loaded, session: Session) -> tuple[Asked, ...]:
    """The targets that the command line names, or else the spec; Misuse for an unknown name."""
    wanted = names or (loaded.spec.targets if loaded.spec else ())
    software = loaded.spec.software if loaded.spec else {}
    try:
        return tuple(session.registry.resolve(name, software) for name in wanted)
    except LookupError as unknown:
        raise Misuse(str(unknown.args[0])) from None


def planned(options: Namespace, session: Session) -> Planned:
    """Load and plan the one spec of a command."""
    loaded = load(options.spec, options, session)
    return plan(loaded, asked_targets(options.targets, loaded, session))
