"""Planes over the tokens of picture and text, through quantities at a few sizes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

import torch

from tunec.compiler.tracing.live.denoiser_inputs import Grid
from tunec.compiler.tracing.live.derivation.curves import TOLERANCE
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.models.denoiser import Plane, highest

_FITTED: Final = 3
"""Sizes to which a plane is fitted; the others prove it."""


class Irregular(Untraceable):
    """What was measured follows no plane."""


def fitted(sizes: Mapping[Grid, float], what: str) -> tuple[Plane, ...]:
    """The planes whose highest goes through quantities at some sizes, and holds at the others.

    Several are of what is the larger at several moments, by the share of the text in the tokens.
    Raises Untraceable where there are none.
    """
    grids = sorted(sizes, key=lambda grid: grid.text / grid.image)
    tried: list[list[Sequence[Grid]]] = [[list(sizes)], *_groups(grids, 2), *_groups(grids, 3)]
    for groups in tried:
        planes = tuple(_plane({g: sizes[g] for g in each[:_FITTED]}) for each in groups)
        if _holds(planes, sizes):
            return planes
    planes = _supports(sizes)
    if planes:
        return planes
    chosen = {grid: sizes[grid] for grid in list(sizes)[: _FITTED + 1]}
    for square in ("square", "pairs"):
        squared = (_plane(chosen, square),)
        if _holds(squared, sizes):
            return squared
    told = ", ".join(f"{size:.0f} at {g.image}+{g.text}" for g, size in sizes.items())
    raise Irregular(f"bytes are no plane over the tokens ({what}: {told})")


def _groups(grids: Sequence[Grid], count: int) -> Iterator[list[Sequence[Grid]]]:
    """Neighbours in so many groups, each of no fewer than a plane is fitted to."""
    if count == 1:
        yield [grids]
        return
    for first in range(_FITTED, len(grids) - _FITTED * (count - 1) + 1):
        for rest in _groups(grids[first:], count - 1):
            yield [grids[:first], *rest]


def _supports(sizes: Mapping[Grid, float]) -> tuple[Plane, ...]:
    """Planes through three sizes each that lie nowhere above what was measured, and meet all.

    The one that meets most goes first; each meets one size at least that it was not fitted to.
    Moments that take turns by more than the share of the text have no neighbours to be told by.
    """
    found: list[tuple[frozenset[Grid], Plane]] = []
    for three in combinations(sizes, _FITTED):
        plane = _plane({grid: sizes[grid] for grid in three})
        above = [highest((plane,), g.image, g.text) / max(size, 1.0) for g, size in sizes.items()]
        if max(above) <= 1 + TOLERANCE:
            at = zip(sizes, above, strict=True)
            found.append((frozenset(g for g, share in at if share >= 1 - TOLERANCE), plane))
    chosen: list[Plane] = []
    left = set(sizes)
    while left and found:
        met, plane = max(found, key=lambda each: (len(each[0] & left), len(each[0])))
        if len(met) <= _FITTED or not met & left:
            return ()
        chosen.append(plane)
        left -= met
    return tuple(chosen) if not left else ()


def _plane(sizes: Mapping[Grid, float], square: str = "") -> Plane:
    tokens = [
        (1, grid.image, grid.text, (grid.image + grid.text) ** 2, grid.text**2) for grid in sizes
    ]
    column = {"": 3, "square": 3, "pairs": 4}[square]
    rows = [(*each[:3], *((each[column],) if square else ())) for each in tokens]
    matrix = torch.tensor(rows, dtype=torch.float64)
    answer = torch.tensor([float(each) for each in sizes.values()], dtype=torch.float64)
    found = torch.linalg.solve(matrix, answer).tolist()
    names = ("fixed", "image", "text", *((square,) if square else ()))
    return Plane(**{name: _clean(each) for name, each in zip(names, found, strict=True)})


def _clean(value: float) -> float:
    """Without what the arithmetic leaves behind: bytes are counted in 64ths of a token's."""
    return round(value * 64) / 64


def _holds(planes: tuple[Plane, ...], sizes: Mapping[Grid, float]) -> bool:
    return all(
        abs(highest(planes, g.image, g.text) - size) <= TOLERANCE * max(size, 1.0)
        for g, size in sizes.items()
    )
