"""The names of targets in a spec."""

from collections.abc import Collection, Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted, shortened
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.nodes import Node, descend, place
from tunec.compiler.frontend.software import is_version, not_a_version
from tunec.schemas.source import Path as Place

_SHORTEST: Final = 2
"""Letters from which a word may be an abbreviation."""


def check_targets(value: Any, tree: Node, known: Collection[str]) -> Iterator[Diagnostic]:
    """Check `targets`: each is `name` or `name@version`; any name passes if no target is known."""
    for at, each in enumerate(value if isinstance(value, list) else ()):
        if isinstance(each, str):
            yield from _check_target(each, tree, ("targets", at), known)


def _check_target(
    text: str, tree: Node, path: Place, known: Collection[str]
) -> Iterator[Diagnostic]:
    name, at, version = text.partition("@")
    if known and name not in known:
        yield error(
            "E0309",
            f"no target is called `{shortened(name)}`",
            place(descend(tree, path)[0]),
            label="unknown target",
            path=path,
            notes=(f"there are {quoted(known, 'and')}",),
            help=did_you_mean(nearest(name, known) or _abbreviated(name, known))
            or "name one of them",
        )
    if at and not is_version(version):
        yield not_a_version(version, tree, path)


def _abbreviated(name: str, known: Collection[str]) -> list[str]:
    """The names whose letters a word takes in order (`hf`), or that it is a part of (`swift`)."""
    if len(name) < _SHORTEST:
        return []
    taken = [each for each in known if each[:1] == name[:1] and _is_within(name, each)]
    return taken or [each for each in known if name in each]


def _is_within(letters: str, name: str) -> bool:
    rest = iter(name)
    return all(letter in rest for letter in letters)
