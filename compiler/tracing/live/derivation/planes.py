"""Planes over the tokens of picture and text, through quantities at a few sizes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

import torch

from tunec.compiler.tracing.live.denoiser_sample import Grid
from tunec.compiler.tracing.live.derivation.curves import TOLERANCE
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.frozen import replace
from tunec.schemas.models.denoiser import Plane, highest

_FITTED: Final = 3
"""The number of sizes to which a plane is fitted; the others verify it."""
_EXACT: Final = 2e-5
"""Share by which what is truly of pairs of tokens may miss a size: storages are filled up."""
_SQUARES: Final = ("square", "pairs")
"""What a plane may have besides: bytes for each pair of tokens, or of the text's alone."""
_VARYING: Final = {True: ("text",), False: ()}
"""The variables of a plane: a text of fixed length is none, since its bytes are part of any
size."""
_TERMS: Final[Mapping[str, Callable[[Grid], int]]] = {
    "fixed": lambda _: 1,
    "image": lambda grid: grid.image,
    "text": lambda grid: grid.text,
    "square": lambda grid: (grid.image + grid.text) ** 2,
    "pairs": lambda grid: grid.text**2,
}
"""The factor of each coefficient of a plane."""


class Irregular(Untraceable):
    """The measured bytes follow no plane."""


def fitted(sizes: Mapping[Grid, float], what: str, above: float = 0.0) -> tuple[Plane, ...]:
    """The planes whose highest goes through quantities at some sizes, and holds at the others.

    Several are of what is the larger at several moments, by the share of the text in the tokens.
    `above`: the share by which a plane may lie over what follows none. Raises Untraceable where
    there are none.
    """
    for planes, within in _tried(sizes):
        if planes and _holds(planes, sizes, within):
            return planes
    over = _over(sizes) if above else None
    if over is not None and all(
        over.at(g.image, g.text) <= (1 + above) * max(size, 1.0) for g, size in sizes.items()
    ):
        return (over,)
    told = ", ".join(f"{size:.0f} at {g.image}+{g.text}" for g, size in sizes.items())
    raise Irregular(f"bytes are no plane over the tokens ({what}: {told})")


def _tried(sizes: Mapping[Grid, float]) -> Iterator[tuple[tuple[Plane, ...], float]]:
    """What may go through quantities, and how near it must: that of the fewest coefficients first.

    Turns that moments take can look like pairs of tokens, which meet them all but never quite.
    """
    yield (_plane(dict(list(sizes.items())[:_FITTED])),), TOLERANCE
    chosen = dict(list(sizes.items())[: _FITTED + 1])
    squared = [(_plane(chosen, square),) for square in _SQUARES]
    yield from (((_plane(sizes, square),), _EXACT) for square in _SQUARES)
    grids = sorted(sizes, key=lambda grid: grid.text / grid.image)
    for groups in (*_groups(grids, 2), *_groups(grids, 3)):
        yield tuple(_plane({g: sizes[g] for g in each[:_FITTED]}) for each in groups), TOLERANCE
    yield _supports(sizes, ""), TOLERANCE
    yield from ((planes, TOLERANCE) for planes in squared)
    yield from ((_supports(sizes, square), TOLERANCE) for square in _SQUARES)


def _over(sizes: Mapping[Grid, float]) -> Plane:
    """The nearest plane with squares, raised until no measurement is above it."""
    plane = _plane(sizes, "square")
    short = max(size - plane.at(g.image, g.text) for g, size in sizes.items())
    return replace(plane, fixed=_clean(plane.fixed + max(short, 0.0)))


def _groups(grids: Sequence[Grid], count: int) -> Iterator[list[Sequence[Grid]]]:
    """Neighbours in so many groups, each with at least as many sizes as a plane is fitted to."""
    if count == 1:
        yield [grids]
        return
    for first in range(_FITTED, len(grids) - _FITTED * (count - 1) + 1):
        for rest in _groups(grids[first:], count - 1):
            yield [grids[:first], *rest]


def _supports(sizes: Mapping[Grid, float], square: str) -> tuple[Plane, ...]:
    """Planes through a few sizes each that lie nowhere above what was measured, and meet all.

    The one that meets most goes first; each meets one size at least that it was not fitted to.
    Moments that take turns by more than the share of the text have no neighbours to be told by.
    """
    found: list[tuple[frozenset[Grid], Plane]] = []
    fitted_to = _FITTED + (1 if square else 0)
    for few in combinations(sizes, fitted_to):
        plane = _plane({grid: sizes[grid] for grid in few}, square)
        above = [highest((plane,), g.image, g.text) / max(size, 1.0) for g, size in sizes.items()]
        if max(above) <= 1 + TOLERANCE:
            at = zip(sizes, above, strict=True)
            found.append((frozenset(g for g, share in at if share >= 1 - TOLERANCE), plane))
    chosen: list[Plane] = []
    left = set(sizes)
    while left and found:
        met, plane = max(found, key=lambda each: (len(each[0] & left), len(each[0])))
        if len(met) <= fitted_to or not met & left:
            return ()
        chosen.append(plane)
        left -= met
    return tuple(chosen) if not left else ()


def _plane(sizes: Mapping[Grid, float], square: str = "") -> Plane:
    names = ["fixed", "image", *_VARYING[len({grid.text for grid in sizes}) > 1]]
    names += [square] if square else []
    terms = [[_TERMS[name](grid) for name in names] for grid in sizes]
    matrix = torch.tensor(terms, dtype=torch.float64)
    scale = matrix.abs().amax(0)
    answer = torch.tensor([float(each) for each in sizes.values()], dtype=torch.float64)
    found = torch.linalg.lstsq(matrix / scale, answer, driver="gelsd").solution / scale
    return Plane(**{name: _clean(each) for name, each in zip(names, found.tolist(), strict=True)})


def _clean(value: float) -> float:
    """Remove rounding errors: bytes are counted in 64ths of a token's."""
    return round(value * 64) / 64


def _holds(planes: tuple[Plane, ...], sizes: Mapping[Grid, float], within: float) -> bool:
    return all(
        abs(highest(planes, g.image, g.text) - size) <= within * max(size, 1.0)
        for g, size in sizes.items()
    )
