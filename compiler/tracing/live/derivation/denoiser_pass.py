"""One pass of a reduced diffusion transformer on meta, with every storage followed to its block."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, Self

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
from tunec.compiler.tracing.live.storages import Storages
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


Streams = Mapping[int, Storage]
"""What each block is given, by the block's place."""


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
    once = _run(model, given, work, way, recomputed=False)
    return _read(once, again or once, work.order, shapes).of_one(samples, rows)


def _freeze(model: torch.nn.Module, reduced: Reduced, apart: frozenset[str]) -> None:
    model.requires_grad_(requires_grad=False)
    for path in dict.fromkeys(each.path for each in reduced.blocks if each.path not in apart):
        model.get_submodule(f"{path}.0").register_forward_pre_hook(_wanting, with_kwargs=True)


def _wanting(_: Any, args: Any, kwargs: Any) -> None:
    """Let gradients pass the stream, as adapters before it make them."""
    stream = _stream(args, kwargs)
    if stream is not None and not stream.requires_grad:
        stream.requires_grad_(requires_grad=True)


def _stream(args: Any, kwargs: Any) -> torch.Tensor | None:
    """The tokens among what a block is given."""
    tensors = (each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor))
    return next((each for each in tensors if each.is_floating_point() and each.dim() > 2), None)


def _watch_streams(model: torch.nn.Module, order: Sequence[str], storages: Storages) -> Streams:
    """The storage of the stream that each block is given, as soon as it runs."""
    found: dict[int, Storage] = {}

    def watch(at: int) -> Callable[..., None]:
        def seen(_: Any, args: Any, kwargs: Any) -> None:
            stream = _stream(args, kwargs)
            if stream is not None:
                found[at] = storages.alive[stream.untyped_storage()._cdata]  # noqa: SLF001

        return seen

    for at, name in enumerate(order):
        model.get_submodule(name).register_forward_pre_hook(watch(at), with_kwargs=True)
    return found


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


class _Events(NamedTuple):
    """A forward pass, and the backward pass behind it."""

    every: Sequence[Event]
    middle: int
    """How many are of the forward pass."""
    streams: Streams


def _run(model: Any, given: Given, work: Work, way: Way, *, recomputed: bool) -> _Events:
    """Forward and backward; recomputed, the forward pass alone."""
    if recomputed:
        model.enable_gradient_checkpointing()
    batch = inputs(model, given)
    recording = recorded(model, batch, autocast=way.autocast)
    with answered(given, work.traits), recording as (storages, casts):
        streams = _watch_streams(model, work.order, storages)
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
    return _Events(events, middle, streams)


def _read(
    once: _Events, again: _Events, order: Sequence[str], shapes: frozenset[tuple[int, ...]]
) -> Sizes:
    events, middle = once.every, once.middle
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
    inputs = _inputs(again, index, shapes)
    return Sizes(saved, working, forward, inputs, around, compared)


def _inputs(
    again: _Events, index: Callable[[Storage], int | None], shapes: frozenset[tuple[int, ...]]
) -> dict[int, int]:
    """Bytes that are kept for each block that is recomputed: what it hands on, or its own stream.

    The last block of a list hands on nothing that is kept if the model joins its result with
    another's (diffusers 0.42 `transformer_z_image.py`, `forward`: `noise_refiner`).
    """
    events = again.every[: again.middle]
    inputs, _ = _kept(events, index, shapes)
    sizes = dict(alive(events))
    handing = {index(each) for each in sizes}
    given = {at: sizes.get(each, 0) for at, each in again.streams.items() if at not in handing}
    return {**inputs, **given}


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
