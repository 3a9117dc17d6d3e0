"""`tunec probe`: a hardware profile of this machine."""

from argparse import Namespace
from pathlib import Path

from tunec.compiler.cli.session import INPUT, OK, Session
from tunec.compiler.probe.machine import Unreadable, describe
from tunec.compiler.probe.readings import take
from tunec.compiler.writing import write_all
from tunec.schemas.hardware.profile import Cluster

_HEAD = "# written by tunec probe; `tunec schema cluster` prints its schema\n"


def run(options: Namespace, session: Session) -> int:
    """Print or write a cluster file; if there can be none, exit with 1 and every reason."""
    try:
        found = describe(take(_packages(session)), options.name)
    except Unreadable as fault:
        return _refuse(fault, session)
    if options.output is not None:
        write_all({Path(options.output): _text(found)})
    elif session.format == "json":
        session.json(found.model_dump(mode="json", exclude_defaults=True))
    else:
        session.result(_text(found))
    return OK


def _packages(session: Session) -> set[str]:
    """The packages on which targets' keys depend, and torch."""
    targets = [session.registry.resolve(name)[0] for name in session.registry.names()]
    return {"torch"} | {name for each in targets for name in (each.package, *each.beside)}


def _text(found: Cluster) -> str:
    import yaml

    data = found.model_dump(mode="json", exclude_defaults=True)
    return _HEAD + str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100))


def _refuse(fault: Unreadable, session: Session) -> int:
    if session.format == "json":
        session.json({"cluster": None, "refused": list(fault.reasons)})
    else:
        for reason in fault.reasons:
            session.note(f"tunec probe: {reason}")
    return INPUT
