"""Measure what each kind of block of a diffusion transformer keeps and works in, on meta.

A model of a few blocks runs at a few sizes of picture and text, and every storage is followed to
the block that made it. Bytes are planes over the tokens of both: fitted exactly at some sizes, and
verified at others.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import torch
from msgspec import Struct

from tunec.compiler.tracing.live.denoiser_sample import Grid, Traits
from tunec.compiler.tracing.live.derivation.blocks import lists
from tunec.compiler.tracing.live.derivation.curves import TOLERANCE
from tunec.compiler.tracing.live.derivation.denoiser_pass import Reduced, Sizes, Work, pass_of
from tunec.compiler.tracing.live.derivation.planes import Irregular, fitted
from tunec.compiler.tracing.live.derivation.text_pass import WAYS, Way
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.frozen import replace
from tunec.schemas.models.denoiser import Around, BlockBytes, Plane
from tunec.schemas.models.layer_measures import ALONE

GRIDS: Final = (
    Grid(1, 46, 38, 62),
    Grid(1, 34, 58, 170),
    Grid(1, 62, 50, 258),
    Grid(1, 54, 42, 330),
    Grid(1, 22, 26, 602),
    Grid(1, 30, 26, 1102),
)
MORE_GRIDS: Final = (
    *GRIDS,
    Grid(1, 60, 66, 70),
    Grid(1, 52, 70, 94),
    Grid(1, 30, 62, 290),
    Grid(1, 38, 34, 310),
    Grid(1, 58, 62, 126),
    Grid(1, 22, 30, 900),
    Grid(1, 28, 34, 606),
)
"""Sizes for classes whose peak moment changes with the shares of picture and text."""
MANY_GRIDS: Final = (
    *MORE_GRIDS,
    Grid(1, 44, 36, 90),
    Grid(1, 36, 48, 450),
    Grid(1, 64, 58, 500),
    Grid(1, 32, 42, 700),
    Grid(1, 24, 38, 750),
    Grid(1, 26, 34, 460),
    Grid(1, 40, 52, 820),
    Grid(1, 66, 46, 640),
    Grid(1, 56, 44, 180),
    Grid(1, 48, 34, 250),
    Grid(1, 68, 58, 350),
    Grid(1, 36, 40, 150),
)
"""Sizes for classes in which several moments alternate as the peak: each plane is verified at sizes
to which it was not fitted."""
ABOVE: Final = 0.02
"""Share by which the most that a block works in may be overstated where it follows no plane: that
of moments which take turns, of which there are more than sizes tell."""
MULTIPLE: Final = 128
WHOLE_GRIDS: Final = (
    Grid(1, 48, 40, 768),
    Grid(1, 32, 56, 256),
    Grid(1, 64, 50, 384),
    Grid(1, 48, 48, 512),
    Grid(1, 24, 32, 640),
    Grid(1, 32, 28, 1152),
)
"""Sizes for classes that pad a sequence to a fixed number of tokens, or to a fraction of it."""
SMALL_GRIDS: Final = (
    Grid(1, 22, 26, 62),
    Grid(1, 18, 30, 170),
    Grid(1, 28, 32, 258),
    Grid(1, 30, 26, 330),
    Grid(1, 14, 32, 126),
    Grid(1, 16, 26, 602),
)
"""Sizes for classes whose table of positions ends earlier; curves are fitted to the first three."""


class Found(Struct, frozen=True):
    """The measurements of one kind of block."""

    bytes: tuple[BlockBytes, ...]
    joint: Any
    attends: bool


class Measures(Struct, frozen=True):
    """The measurements of a model."""

    blocks: list[Found]
    around: tuple[Around, ...]
    rows: Mapping[str, Plane]
    multiple: int
    """The number of tokens to whose multiples picture and text are padded."""


def measures(reduced: Reduced, traits: Traits) -> Measures:
    """Measure the blocks, and the operations around them, in every way of computing.

    Raises Untraceable if a pass does not run, or bytes are no plane over the tokens.
    """
    work = Work(reduced, traits, tuple(_order(reduced.model)))
    sizes = _Sizes(traits, reduced.model)
    grids = _grids(work, sizes)
    work = replace(work, recomputes=not _refused(work, grids[2], recomputes=True))
    asked = _Passes(work)
    others = (MORE_GRIDS, WHOLE_GRIDS, MANY_GRIDS) if grids == sizes.of(GRIDS) else ()
    for each in (grids, *map(sizes.of, others)):
        with suppress(Irregular):
            return _measured(work, each, asked)
    return _measured(work, grids, asked, ABOVE)


class _Passes:
    """The passes of a model, each of which runs only once."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.known: dict[tuple[Way, Grid, int], Sizes] = {}

    def __call__(self, way: Way, grid: Grid, samples: int) -> Sizes:
        asked = way, grid, samples
        if asked not in self.known:
            self.known[asked] = pass_of(self.work, *asked)
        return self.known[asked]


def _measured(work: Work, grids: Sequence[Grid], asked: _Passes, above: float = 0.0) -> Measures:
    """Measure at the given sizes; passes that have already run are reused."""
    places = [work.order.index(f"{each.path}.{each.at}") for each in work.reduced.blocks]
    blocks: list[list[BlockBytes]] = [[] for _ in places]
    around: list[Around] = []
    first: dict[Grid, Sizes] = {}
    several: Sizes | None = None
    for way in WAYS:
        for samples in (2, 1):
            passes = {grids[0]: asked(way, grids[0], samples)}
            if samples == 1 and _is_like(passes[grids[0]], several):
                continue
            passes |= {grid: asked(way, grid, samples) for grid in grids[1:]}
            first, several = first or passes, passes[grids[0]]
            name = way.named(eager=False) + ALONE * (samples == 1)
            for own, at in zip(blocks, places, strict=True):
                own.append(_bytes(name, at, passes, above))
            around.append(Around(name, fitted({g: p.around for g, p in passes.items()}, name)))
    found = [
        Found(tuple(own), _joint(at, first), any(p.compared.get(at) for p in first.values()))
        for own, at in zip(blocks, places, strict=True)
    ]
    multiple = MULTIPLE if all(grid.text % MULTIPLE == 0 for grid in grids) else 1
    return Measures(found, tuple(around), _rows(first), multiple)


def _bytes(name: str, at: int, passes: Mapping[Grid, Sizes], above: float) -> BlockBytes:
    def plane(what: str, above: float = 0.0) -> tuple[Plane, ...]:
        sizes = {grid: getattr(each, what).get(at, 0) for grid, each in passes.items()}
        return fitted(sizes, f"{what}, {name}", above)

    return BlockBytes(
        name, plane("saved"), plane("working", above), plane("forward", above), plane("inputs")
    )


def _is_like(alone: Sizes, several: Sizes | None) -> bool:
    """Whether one sample takes as much as each of several, apart from storages that exist once."""
    if several is None:
        return False
    return all(
        abs(size - own.get(at, 0)) <= TOLERANCE * size
        for of_one, own in zip(alone.by_block, several.by_block, strict=True)
        for at, size in of_one.items()
    )


def _joint(at: int, passes: Mapping[Grid, Sizes]) -> str:
    """The stream of a block's attention: "double" if it joins picture and text, else "none"."""
    return (
        "double"
        if all(p.compared.get(at, 0) >= g.image + g.text for g, p in passes.items())
        else "none"
    )


def _rows(passes: Mapping[Grid, Sizes]) -> dict[str, Plane]:
    names = {name for each in passes.values() for name in each.rows}
    found = {}
    for name in sorted(names):
        sizes = {grid: each.rows.get(name, 0) for grid, each in passes.items()}
        found[name] = fitted(sizes, f"rows of {name}")[0]
    return found


class _Sizes:
    """The sizes of pictures and texts that a class supports."""

    def __init__(self, traits: Traits, model: Any) -> None:
        self.unit, self.square = traits.unit, traits.square
        self.fixed = traits.fixed(model.config) if traits.fixed else None
        self.widths = {side for each in model.parameters() for side in each.shape}

    def of(self, grids: Sequence[Grid]) -> tuple[Grid, ...]:
        """The given sizes with sides in whole units, and with the one supported length of text."""
        return tuple(map(self._of, grids))

    def _of(self, grid: Grid) -> Grid:
        high, wide = (-(-side // self.unit) * self.unit for side in (grid.rows, grid.columns))
        # gradients of weights are told from activations by their shape
        while self.unit > 1 and high * wide in self.widths:
            wide += self.unit
        text = grid.text if self.fixed is None else self.fixed
        return Grid(grid.frames, high, high if self.square else wide, text)


def _grids(work: Work, sizes: _Sizes) -> tuple[Grid, ...]:
    """The larger sizes if the class takes them. Raises Untraceable if it takes none."""
    large, small = sizes.of(GRIDS), sizes.of(SMALL_GRIDS)
    told = _refused(work, large[2])
    if not told:
        return large
    if _refused(work, small[2]):
        raise Untraceable(f"its forward pass does not run on meta: {told}")
    return small


def _refused(work: Work, grid: Grid, *, recomputes: bool = False) -> str:
    """The fault that a class raises for a picture; "": it takes the picture."""
    try:
        pass_of(replace(work, recomputes=recomputes), WAYS[0], grid, 1)
    except Untraceable:
        raise
    except Exception as fault:  # noqa: BLE001  whatever its own code raises
        return f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0]}"
    return ""


def _order(model: torch.nn.Module) -> list[str]:
    """The blocks of all lists in the module tree's order, which is that of the forward pass."""
    return [f"{path}.{at}" for path, blocks in lists(model) for at in range(len(blocks))]
