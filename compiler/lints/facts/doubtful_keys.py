"""Keys that only some releases have, where nothing says which one runs: one finding for a file."""

from collections.abc import Mapping, Sequence
from typing import Final

from tunec.compiler.lints.document import Place
from tunec.compiler.lints.rule import Consequence, Finding

_MOST_TOLD: Final = 6
_MOST_NAMED: Final = 12

Doubtful = Mapping[str, tuple[Place, Sequence[str]]]
"""Where each key is written, and the known releases that have it, oldest first."""


def perhaps(package: str, doubtful: Doubtful, consequence: Consequence) -> Finding:
    """That a file has these keys: a note, or a warning where no known release has them all."""
    places = [place for place, _ in doubtful.values()]
    names = _listed([f"`{path}`" for path in doubtful], _MOST_NAMED)
    told = [f"{path}: {package} {_span(having)}" for path, (_, having) in doubtful.items()]
    common = frozenset[str].intersection(*(frozenset(having) for _, having in doubtful.values()))
    message = (
        f"not every release of {package} has {names}, and nothing here says which one runs"
        if common
        else f"no known release of {package} has all of {names}"
    )
    return Finding(
        message,
        tuple(each.key_label("", primary=each is places[0]) for each in places),
        (*told[:_MOST_TOLD], *_more(told)),
        f"require a release of {package} in a file beside this one, such as requirements.txt, or "
        f"name it: --software {package}=VERSION",
        certain=not common,
        severity=None if common else "warning",
        consequence=consequence,
    )


def _span(having: Sequence[str]) -> str:
    if not having:
        return "none"
    return having[0] if len(having) == 1 else f"{having[0]} to {having[-1]}"


def _more(told: Sequence[str]) -> tuple[str, ...]:
    return (f"and {len(told) - _MOST_TOLD} more",) if len(told) > _MOST_TOLD else ()


def _listed(names: Sequence[str], most: int) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
