"""`tunec completion`: a shell's completion script, made by the shtab library."""

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator

from tunec.compiler.cli.arguments import build_parser
from tunec.compiler.cli.session import OK, Session


def run(options: Namespace, session: Session) -> int:
    """Print the script."""
    import shtab

    parser = build_parser("")
    names = _names(session)
    for command, action in _actions(parser):
        word = str(action.metavar or action.dest)
        known = names.get(f"{command} {word}", names.get(word))
        if action.choices is None and known:
            action.choices = known
        elif word == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif set(word.split("|")) & {"SPEC", "FILE", "DIR", "OLD", "NEW"}:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    script = shtab.complete(parser, shell=options.shell)
    if session.format == "json":
        session.json({"shell": options.shell, "script": script})
    else:
        session.result(script)
    return OK


def _actions(parser: ArgumentParser, command: str = "") -> Iterator[tuple[str, Action]]:
    """The arguments of each command; argparse has no public way to list them."""
    for action in parser._actions:  # noqa: SLF001  see above
        if isinstance(action.choices, dict):
            for name, below in action.choices.items():
                yield from _actions(below, name)
        else:
            yield command, action


def _names(session: Session) -> dict[str, list[str]]:
    """Possible values of an argument, by its name in the help text."""
    from tunec.compiler.cli import catalog_command, schema_command
    from tunec.compiler.ir.slots import SLOTS
    from tunec.compiler.passes.pipeline import PIPELINE
    from tunec.schemas.hardware.catalogue import hardware_names
    from tunec.schemas.models.catalogue import card_names
    from tunec.schemas.prices.book import providers, regions, shipped

    clusters, models = list(hardware_names()), list(card_names())
    return {
        "catalog KIND": list(catalog_command.kinds(session)),
        "schema KIND": schema_command.known(),
        "NAME[@VERSION]": list(session.registry.names()),
        "H": clusters,
        "hardware": clusters,
        "REGION": list(regions(shipped())),
        "PROVIDER": list(providers(shipped())),
        "M": models,
        "model": models,
        "SLOT": list(SLOTS),
        "PASS": [each.name for each in PIPELINE],
    }
