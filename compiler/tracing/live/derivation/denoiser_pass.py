"""One pass of a reduced diffusion transformer on meta, with every storage followed to its block."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Self

import torch
from msgspec import Struct

from tunec.compiler.tracing.live.bitsandbytes_layers import quantize
from tunec.compiler.tracing.live.denoiser_inputs import inputs, patch_of
from tunec.compiler.tracing.live.denoiser_sample import Given, Grid, Traits
from tunec.compiler.tracing.live.denoiser_values import answered
from tunec.compiler.tracing.live.derivation.blocks import PRODUCTS
from tunec.compiler.tracing.live.derivation.text_pass import (
    COMPARES,
    NF4,
    Way,
    alive,
    forward_of,
    is_counted,
    recorded,
    shapes_of,
    working_of,
)
from tunec.compiler.tracing.live.step import (
    backward,
    first_tensor,
    pattern,
)
from tunec.compiler.tracing.recording import Event, Storage
from tunec.schemas.frozen import replace


class Blocks(Struct, frozen=True):
    """The place in a reduced model where one kind of block is measured."""

    path: str
    at: int


class Reduced(Struct, frozen=True):
    """A model of a few blocks; each pass runs on a copy."""

    model: Any
    blocks: Sequence[Blocks]


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
    recomputes: bool = True
    """Whether the class can recompute its blocks; else it keeps them whole."""


def pass_of(work: Work, way: Way, grid: Grid, samples: int) -> Sizes:
    """Bytes of one sample in a pass of so many."""
    reduced = work.reduced
    model = deepcopy(reduced.model)
    shapes = shapes_of(model)
    model.to(way.held).train()
    if not way.trained:
        _freeze(model, reduced, work.traits.apart)
    if way.packed:
        inside = (n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear))
        quantize(model, [n for n in inside if any(n.startswith(f"{b}.") for b in work.order)], NF4)
    dtype = torch.bfloat16 if way.autocast else way.held
    given = Given(model.config, grid, samples, dtype, patch_of(model.config, work.traits))
    rows = _watch_rows(model, samples)
    again = _run(deepcopy(model), given, work, way, recomputed=True) if work.recomputes else None
    events, middle = _run(model, given, work, way, recomputed=False)
    again = again or (events, middle)
    return _read(events, middle, again, work.order, shapes).of_one(samples, rows)


def _freeze(model: torch.nn.Module, reduced: Reduced, apart: frozenset[str]) -> None:
    model.requires_grad_(requires_grad=False)
    for path in dict.fromkeys(each.path for each in reduced.blocks if each.path not in apart):
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


def _run(
    model: Any, given: Given, work: Work, way: Way, *, recomputed: bool
) -> tuple[list[Event], int]:
    """Forward and backward; recomputed, the forward pass alone."""
    if recomputed:
        model.enable_gradient_checkpointing()
    batch = inputs(model, given)
    recording = recorded(model, batch, autocast=way.autocast)
    with answered(given, work.traits), recording as (storages, casts):
        storages.begin("forward")
        with casts:
            answer = first_tensor(model(**batch))
            loss = answer.float().pow(2).mean()
        gc.collect()
        middle = len(storages.recording.events)
        if not recomputed:
            storages.begin("backward")
            with casts:
                backward(loss)
        events = list(storages.recording.events)
    return events, middle


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
    around, joined = 0, _joined(events, index)
    for storage, size in alive(events):
        at = index(storage)
        at = joined.get(storage) if at is None else at
        if not is_counted(storage, shapes):
            continue
        if at is not None:
            kept[at] = kept.get(at, 0) + size
        elif storage.module:
            around += size
    return kept, around


def _joined(events: Sequence[Event], index: Callable[[Storage], int | None]) -> dict[Storage, int]:
    """Storages that the model itself makes between two blocks, with the block before them.

    diffusers 0.42 `transformer_hidream_image.py`, `forward`: the text is joined to the tokens again
    before every block.
    """
    found: dict[Storage, int] = {}
    between: list[Storage] = []
    last: int | None = None
    for storage, change in events:
        at = index(storage)
        if change <= 0:
            continue
        if at is None:
            between += [storage] if last is not None and not storage.module else []
            continue
        if last is not None and at != last:
            found |= dict.fromkeys(between, last)
        between, last = [], at
    return found


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
