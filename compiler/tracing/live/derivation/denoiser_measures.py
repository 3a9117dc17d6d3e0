"""What each kind of block of a diffusion transformer keeps and works in, off passes on meta.

A model of a few blocks runs at a few sizes of picture and text, and every storage is followed to
the block that made it. Bytes are planes over the tokens of both: fitted exactly at some sizes, and
proven at others.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from copy import deepcopy
from typing import Any, Final, Self

import torch
from msgspec import Struct

from tunec.compiler.tracing.live.answers import Answers
from tunec.compiler.tracing.live.autocast import CudaAutocast
from tunec.compiler.tracing.live.bitsandbytes_layers import quantize
from tunec.compiler.tracing.live.denoiser_inputs import (
    Given,
    Grid,
    Traits,
    counted,
    inputs,
    patch_of,
)
from tunec.compiler.tracing.live.derivation.blocks import PRODUCTS, lists
from tunec.compiler.tracing.live.derivation.measures import (
    COMPARES,
    NF4,
    TOLERANCE,
    WAYS,
    Placed,
    Way,
    alive,
    forward_of,
    is_counted,
    shapes_of,
    working_of,
)
from tunec.compiler.tracing.live.kernels import as_on_gpu
from tunec.compiler.tracing.live.step import (
    backward,
    name_batch,
    name_model,
    pattern,
    watch_gradients,
)
from tunec.compiler.tracing.recording import Event, Storage
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.frozen import replace
from tunec.schemas.models.denoiser import ALONE, Around, BlockBytes, Plane, highest

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
"""Where what is the largest changes with the shares of picture and text."""
MULTIPLE: Final = 128
WHOLE_GRIDS: Final = (
    Grid(1, 48, 40, 768),
    Grid(1, 32, 56, 256),
    Grid(1, 64, 50, 384),
    Grid(1, 48, 48, 512),
    Grid(1, 24, 32, 640),
    Grid(1, 32, 28, 1152),
)
"""For classes that fill a sequence up to so many tokens, or to a part of them."""
SMALL_GRIDS: Final = (
    Grid(1, 22, 26, 62),
    Grid(1, 18, 30, 170),
    Grid(1, 28, 32, 258),
    Grid(1, 30, 26, 330),
    Grid(1, 14, 32, 126),
    Grid(1, 16, 26, 602),
)
"""For classes whose table of positions ends before: the first three are fitted to."""
_FITTED: Final = 3


class Irregular(Untraceable):
    """What was measured follows no plane."""


class Blocks(Struct, frozen=True):
    """Where in a reduced model one kind of block is measured."""

    path: str
    at: int


class Reduced(Struct, frozen=True):
    """A model of a few blocks, of which each pass takes a copy."""

    model: Any
    blocks: Sequence[Blocks]


class Found(Struct, frozen=True):
    """What was measured of one kind."""

    bytes: tuple[BlockBytes, ...]
    joint: Any
    attends: bool


class Measures(Struct, frozen=True):
    """What was measured of a model."""

    blocks: list[Found]
    around: tuple[Around, ...]
    rows: Mapping[str, Plane]
    multiple: int
    """Tokens of picture and of text to whose multiples they are filled up."""


class Sizes(Struct, frozen=True):
    """Bytes of one pass, of blocks by their place in the reduced model."""

    saved: Mapping[int, float]
    working: Mapping[int, float]
    forward: Mapping[int, float]
    inputs: Mapping[int, float]
    around: float
    compared: Mapping[int, int]
    """The longest sequence that each block's attention compares."""
    rows: Mapping[str, int] = {}

    @property
    def by_block(self) -> tuple[Mapping[int, float], ...]:
        """Bytes of blocks: kept, worked in, of the forward pass, and handed on."""
        return self.saved, self.working, self.forward, self.inputs

    def of_one(self, samples: int, rows: Mapping[str, int]) -> Self:
        """Bytes of one of so many samples."""

        def share(sizes: Mapping[int, float]) -> dict[int, float]:
            return {at: size / samples for at, size in sizes.items()}

        return replace(
            self,
            saved=share(self.saved),
            working=share(self.working),
            forward=share(self.forward),
            inputs=share(self.inputs),
            around=self.around / samples,
            rows=dict(rows),
        )


class Work(Struct, frozen=True):
    """What all passes share."""

    reduced: Reduced
    traits: Traits
    order: tuple[str, ...]
    """The blocks of the reduced model."""


def measures(reduced: Reduced, traits: Traits) -> Measures:
    """Measure the blocks, and what lies around all of them, in every way of computing.

    Raises Untraceable where a pass does not run, or bytes are no plane over the tokens.
    """
    work = Work(reduced, traits, tuple(_order(reduced.model)))
    grids = _grids(work)
    others = (MORE_GRIDS, WHOLE_GRIDS) if grids == GRIDS else ()
    for each in (grids, *others):
        try:
            return _measured(work, each)
        except Irregular as fault:
            reason = fault
    raise reason


def _measured(work: Work, grids: Sequence[Grid]) -> Measures:
    places = [work.order.index(f"{each.path}.{each.at}") for each in work.reduced.blocks]
    blocks: list[list[BlockBytes]] = [[] for _ in places]
    around: list[Around] = []
    first: dict[Grid, Sizes] = {}
    several: Sizes | None = None
    for way in WAYS:
        for samples in (2, 1):
            passes = {grids[0]: _pass(work, way, grids[0], samples)}
            if samples == 1 and _is_like(passes[grids[0]], several):
                continue
            passes |= {grid: _pass(work, way, grid, samples) for grid in grids[1:]}
            first, several = first or passes, passes[grids[0]]
            name = way.named(eager=False) + ALONE * (samples == 1)
            for own, at in zip(blocks, places, strict=True):
                own.append(_bytes(name, at, passes))
            around.append(Around(name, fitted({g: p.around for g, p in passes.items()}, name)))
    found = [
        Found(tuple(own), _joint(at, first), any(p.compared.get(at) for p in first.values()))
        for own, at in zip(blocks, places, strict=True)
    ]
    return Measures(found, tuple(around), _rows(first), MULTIPLE if grids == WHOLE_GRIDS else 1)


def _bytes(name: str, at: int, passes: Mapping[Grid, Sizes]) -> BlockBytes:
    def plane(what: str) -> tuple[Plane, ...]:
        sizes = {grid: getattr(each, what).get(at, 0) for grid, each in passes.items()}
        return fitted(sizes, f"{what}, {name}")

    return BlockBytes(name, *map(plane, ("saved", "working", "forward", "inputs")))


def _is_like(alone: Sizes, several: Sizes | None) -> bool:
    """Whether one sample takes what each of several takes, but for what is there once."""
    if several is None:
        return False
    return all(
        abs(size - own.get(at, 0)) <= TOLERANCE * size
        for of_one, own in zip(alone.by_block, several.by_block, strict=True)
        for at, size in of_one.items()
    )


def _joint(at: int, passes: Mapping[Grid, Sizes]) -> str:
    """Whether a block's attention compares the picture's tokens with the text's in one sequence."""
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


def _grids(work: Work) -> tuple[Grid, ...]:
    """The larger sizes where the class takes them. Raises Untraceable where it takes none."""
    told = _refused(work, GRIDS[2])
    if not told:
        return GRIDS
    if _refused(work, SMALL_GRIDS[2]):
        raise Untraceable(f"its forward pass does not run on meta: {told}")
    return SMALL_GRIDS


def _refused(work: Work, grid: Grid) -> str:
    """What a class says of a picture; "": it takes it."""
    try:
        _pass(work, WAYS[0], grid, 1)
    except Untraceable:
        raise
    except Exception as fault:  # noqa: BLE001  whatever its own code raises
        return f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0]}"
    return ""


def _order(model: torch.nn.Module) -> list[str]:
    """The blocks of all lists in the order of the forward pass: that of the module tree."""
    return [f"{path}.{at}" for path, blocks in lists(model) for at in range(len(blocks))]


# ── planes ───────────────────────────────────────────────────────────────────────────────────────


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


# ── one pass ─────────────────────────────────────────────────────────────────────────────────────


def _pass(work: Work, way: Way, grid: Grid, samples: int) -> Sizes:
    reduced = work.reduced
    model = deepcopy(reduced.model)
    shapes = shapes_of(model)
    model.to(way.held).train()
    if not way.trained:
        _freeze(model, reduced)
    if way.packed:
        inside = (n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear))
        quantize(model, [n for n in inside if any(n.startswith(f"{b}.") for b in work.order)], NF4)
    dtype = torch.bfloat16 if way.autocast else way.held
    given = Given(model.config, grid, samples, dtype, patch_of(model.config, work.traits))
    rows = _watch_rows(model, samples)
    again = _run(deepcopy(model), given, way, recomputed=True)
    events, middle = _run(model, given, way, recomputed=False)
    return _read(events, middle, again, work.order, shapes).of_one(samples, rows)


def _freeze(model: torch.nn.Module, reduced: Reduced) -> None:
    model.requires_grad_(requires_grad=False)
    for path in dict.fromkeys(each.path for each in reduced.blocks):
        model.get_submodule(f"{path}.0").register_forward_pre_hook(_wanting, with_kwargs=True)


def _wanting(_: Any, args: Any, kwargs: Any) -> None:
    """Let gradients pass the stream, as adapters before it make them."""
    tensors = (each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor))
    stream = next((each for each in tensors if each.is_floating_point() and each.dim() > 2), None)
    if stream is not None and not stream.requires_grad:
        stream.requires_grad_(requires_grad=True)


def _watch_rows(model: torch.nn.Module, samples: int) -> dict[str, int]:
    rows: dict[str, int] = {}

    def watch(name: str) -> Callable[..., None]:
        def seen(module: Any, _: Any, answer: Any) -> None:
            if isinstance(module, torch.nn.Linear):
                count = answer.numel() // answer.shape[-1]
            else:
                count = answer.numel() // answer.shape[1]
            rows[name] = max(rows.get(name, 0), count // samples)

        return seen

    for name, module in model.named_modules():
        if isinstance(module, PRODUCTS):
            module.register_forward_hook(watch(pattern(name)))
    return rows


def _run(model: Any, given: Given, way: Way, *, recomputed: bool) -> tuple[list[Event], int]:
    """Forward and backward; recomputed, the forward pass alone."""
    if recomputed:
        model.enable_gradient_checkpointing()
    batch = inputs(model, given)
    storages, casts = Placed(Answers(0)), CudaAutocast(torch.bfloat16) if way.autocast else None
    storages.watch(model, casts.forget if casts else lambda: None)
    gc.freeze()
    with ExitStack() as stack:
        stack.enter_context(as_on_gpu(casts.lower if casts else None))
        stack.enter_context(counted(given.grid.text))
        stack.enter_context(storages.resizing())
        stack.enter_context(storages)
        name_model(storages, model)
        name_batch(storages, batch)
        watch_gradients(storages, model)
        storages.begin("forward")
        with casts or nullcontext():
            answer = first_tensor(model(**batch, return_dict=False))
            loss = answer.float().pow(2).mean()
        gc.collect()
        middle = len(storages.recording.events)
        if not recomputed:
            storages.begin("backward")
            with casts or nullcontext():
                backward(loss)
        events = list(storages.recording.events)
    gc.unfreeze()
    return events, middle


def first_tensor(answer: Any) -> torch.Tensor:
    """What the model predicts; a list of pictures as one."""
    while isinstance(answer, list | tuple):
        if isinstance(answer, list):
            return torch.stack([first_tensor(each) for each in answer])
        answer = answer[0]
    found: torch.Tensor = answer
    return found


def _read(
    events: Sequence[Event],
    middle: int,
    again: tuple[Sequence[Event], int],
    order: Sequence[str],
    shapes: frozenset[tuple[int, ...]],
) -> Sizes:
    index = _indices(order)
    counts = {event.storage: is_counted(event.storage, shapes) for event in events}
    saved, around = _kept(events[:middle], index, shapes)
    working = working_of(events, middle, index, counts)
    working = {at: most - saved.get(at, 0) for at, most in working.items()}
    forward = forward_of(events[:middle], index, counts)
    compared: dict[int, int] = {}
    for storage in counts:
        at = index(storage)
        if at is not None and COMPARES.search(storage.operation) and len(storage.shape) == 4:
            compared[at] = max(compared.get(at, 0), *storage.shape[1:3])
    inputs, _ = _kept(again[0][: again[1]], index, shapes)
    return Sizes(saved, working, forward, inputs, around, compared)


def _kept(
    events: Sequence[Event],
    index: Callable[[Storage], int | None],
    shapes: frozenset[tuple[int, ...]],
) -> tuple[dict[int, int], int]:
    """Bytes that are kept at the end of a forward pass: of each block, and outside of all."""
    kept: dict[int, int] = {}
    around = 0
    for storage, size in alive(events):
        at = index(storage)
        if not is_counted(storage, shapes):
            continue
        if at is not None:
            kept[at] = kept.get(at, 0) + size
        elif storage.module:
            around += size
    return kept, around


def _indices(order: Sequence[str]) -> Callable[[Storage], int | None]:
    places = {name: at for at, name in enumerate(order)}
    known: dict[str, int | None] = {}

    def index(storage: Storage) -> int | None:
        name = storage.module
        if name not in known:
            known[name] = next(_owners(name, places), None)
        return known[name]

    return index


def _owners(name: str, places: Mapping[str, int]) -> Iterator[int]:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        found = places.get(".".join(parts[:count]))
        if found is not None:
            yield found
