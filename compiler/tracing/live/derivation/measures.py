"""What each kind of layer keeps and works in, read off forward and backward passes on meta.

A model of a few layers runs at a few lengths, and every storage is followed to the layer that made
it. Bytes are polynomials of the length: fitted exactly at some lengths, and proven at others.
"""

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import deepcopy
from functools import partial
from typing import Any, Final

import torch
from msgspec import Struct

from tunec.compiler.analyses.memory.arithmetic import way
from tunec.compiler.ir.slots import Quantization
from tunec.compiler.tracing.live.answers import Answers
from tunec.compiler.tracing.live.autocast import CudaAutocast
from tunec.compiler.tracing.live.bitsandbytes_layers import quantize
from tunec.compiler.tracing.live.derivation.curves import TOLERANCE, Lengths, NoCurve, fitted
from tunec.compiler.tracing.live.derivation.module_tree import is_plain_linear
from tunec.compiler.tracing.live.kernels import as_on_gpu
from tunec.compiler.tracing.live.step import backward, name_batch, name_model, watch_gradients
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.recording import Event, Storage
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.models.layer_measures import Measured

_SHARED: Final = 0.05
"""Share of what a layer keeps that samples may have in common without being measured."""
_ALONE: Final = 0.05
"""Share by which one sample may take less than each of two, and is counted as one of them."""
COMPARES: Final = re.compile("scaled_dot_product|^_softmax")
_ROUTED: Final = 2
"""Sides of what a router gives: tokens and experts."""
NF4: Final = Quantization("nf4", double=True, compute="bf16", storage=None)


class Way(Struct, frozen=True):
    """One way of computing."""

    trained: bool
    held: torch.dtype
    autocast: bool
    packed: bool

    def named(self, *, eager: bool) -> str:
        """How the account asks for it."""
        return way(
            trained=self.trained,
            held=self.held.itemsize,
            autocast=self.autocast,
            packed=self.packed,
            eager=eager,
        )


WAYS: Final = tuple(
    Way(trained, held, autocast, packed)
    for trained, packed in ((True, False), (False, False), (False, True))
    for held in (torch.bfloat16, torch.float32)
    for autocast in (False, True)
)
"""Trained in full or frozen below adapters; in 16 bit, under autocast, packed by bitsandbytes."""


class Pass(Struct, frozen=True):
    """Bytes of one pass, by the layer's place in the reduced model."""

    saved: Mapping[int, int]
    working: Mapping[int, int]
    forward: Mapping[int, int]
    around: int
    """Kept by what is neither a layer, nor the head or its loss."""
    attending: frozenset[int]
    """Layers that compare tokens with each other: by a kernel of attention, or by a softmax."""


class Subject(Struct, frozen=True):
    """A model of a few layers, of which each pass takes a copy."""

    model: torch.nn.Module
    path: str
    """Of its list of layers."""
    head: str
    eager: bool
    active: int
    """Experts that a token passes through; 1: there are none."""


class Found(Struct, frozen=True):
    """What was measured of one layer."""

    measured: tuple[Measured, ...]
    attends: bool


def measures(subject: Subject, places: Sequence[int]) -> tuple[list[Found], tuple[Measured, ...]]:
    """Measure the layers at some places, and what lies around all of them, in every way.

    Raises Untraceable where a pass does not run, bytes follow no curve of the length or of the
    number of samples.
    """
    lengths = Lengths.beside(subject.model, subject.active)
    for more in (Lengths.with_more, Lengths.with_many):
        with suppress(NoCurve):
            return _at_lengths(subject, places, lengths)
        lengths = more(lengths, subject.model, subject.active)
    return _at_lengths(subject, places, lengths)


def _at_lengths(
    subject: Subject, places: Sequence[int], lengths: Lengths
) -> tuple[list[Found], tuple[Measured, ...]]:
    layers: list[list[Measured]] = [[] for _ in places]
    around: list[Measured] = []
    attending: frozenset[int] = frozenset()
    shares, many = False, _together(subject, lengths.unaligned[0], places)
    for each in WAYS:
        passes = {length: _run(subject, each, length, samples=many) for length in lengths.all}
        name = each.named(eager=subject.eager)
        if each is WAYS[0]:
            attending = passes[lengths.aligned[0]].attending
            shares = many == 1 and _shares(subject, passes, lengths, places)
        twice = {s: _run(subject, each, s, samples=2) for s in lengths.all} if shares else {}
        for own, at in zip(layers, places, strict=True):
            sizes = (
                {s: p.saved.get(at, 0) / s / many for s, p in passes.items()},
                {s: p.working.get(at, 0) / s / many for s, p in passes.items()},
                {s: p.forward.get(at, 0) / s / many for s, p in passes.items()},
                {s: (2 * passes[s].saved[at] - p.saved[at]) / s for s, p in twice.items()},
            )
            curves = (fitted(each, lengths, name) for each in sizes if each)
            own.append(Measured(name, *curves))
        outer = {s: p.around / s / many for s, p in passes.items()}
        around.append(Measured(name, fitted(outer, lengths, name)))
    found = [Found(tuple(m), at in attending) for m, at in zip(layers, places, strict=True)]
    return found, tuple(around)


def _together(subject: Subject, length: int, places: Sequence[int]) -> int:
    """Samples of the passes that are measured: two where one alone takes a little less than each.

    Where there is one sample, what is cut from it lies in order, and some copies are not made.
    """
    one, two = (_run(subject, WAYS[0], length, samples=count) for count in (1, 2))
    counts = [(one.saved.get(at, 0), two.saved.get(at, 0)) for at in places]
    once, twice = max(counts, key=lambda each: (each[1] - 2 * each[0]) / max(each[1], 1))
    if twice - 2 * once <= TOLERANCE * twice:
        return 1
    three = _run(subject, WAYS[0], length, samples=3)
    evens = (abs(three.saved[at] - 1.5 * two.saved[at]) / three.saved[at] for at in places)
    if twice - 2 * once > _ALONE * twice or max(evens) > TOLERANCE:
        raise Untraceable(f"two samples keep {twice} bytes where one keeps {once}")
    return 2


def _shares(
    subject: Subject, passes: Mapping[int, Pass], lengths: Lengths, places: Sequence[int]
) -> bool:
    """Whether samples have more in common than can be counted for each of them.

    Passes of one, two and three samples must lie on a line, or two take twice as much as one.
    """
    length = lengths.unaligned[0]
    one = passes[length]
    two = _run(subject, WAYS[0], length, samples=2)
    counts = [(one.saved.get(at, 0), two.saved.get(at, 0)) for at in places]
    if all(2 * once - twice < _SHARED * twice for once, twice in counts):
        return False
    three = _run(subject, WAYS[0], length, samples=3)
    for at, (once, twice) in zip(places, counts, strict=True):
        thrice = three.saved.get(at, 0)
        if abs(thrice - (2 * twice - once)) > TOLERANCE * thrice:
            told = f"one, two and three samples keep {once}, {twice} and {thrice} bytes"
            raise Untraceable(f"{told}, which lie on no line")
    return True


# ── one pass ─────────────────────────────────────────────────────────────────────────────────────


def _run(subject: Subject, asked: Way, length: int, samples: int = 1) -> Pass:
    try:
        return _pass(subject, asked, length, samples)
    except Exception as fault:
        told = f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0]}"
        name = asked.named(eager=subject.eager)
        raise Untraceable(f"its pass ({name}) does not run: {told}") from fault


def _pass(subject: Subject, asked: Way, length: int, samples: int) -> Pass:
    model = deepcopy(subject.model)
    shapes = shapes_of(model)
    model.to(asked.held).train()
    if not asked.trained:
        model.requires_grad_(requires_grad=False)
        model.get_input_embeddings().register_forward_hook(wanting_gradients)
    if asked.packed:
        inside = (
            name
            for name, module in model.named_modules()
            if is_plain_linear(module) and name.startswith(subject.path)
        )
        quantize(model, list(inside), NF4)
    tokens = torch.zeros(samples, length, dtype=torch.long, device="meta")
    batch = {"input_ids": tokens, "labels": torch.zeros_like(tokens)}
    with recorded(model, batch, autocast=asked.autocast) as (storages, casts):
        storages.begin("forward")
        with casts:
            loss = model(**batch).loss
        gc.collect()
        middle = len(storages.recording.events)
        storages.begin("backward")
        with casts:
            backward(loss)
    return _read(storages.recording.events, middle, subject, shapes)


def wanting_gradients(_: Any, __: Any, output: torch.Tensor) -> None:
    """Let gradients pass the stream, as adapters before it make them."""
    output.requires_grad_(requires_grad=True)


@contextmanager
def recorded(
    model: torch.nn.Module, batch: dict[str, Any], *, autocast: bool
) -> Iterator[tuple[Storages, AbstractContextManager[Any]]]:
    """Record what a pass makes and lets go of, as it would on a GPU.

    Gives the storages, and what forward and backward run in, which casts under autocast alone.
    """
    storages, casts = _Placed(Answers(0)), CudaAutocast(torch.bfloat16) if autocast else None
    storages.watch(model, casts.forget if casts else lambda: None)
    gc.freeze()
    with as_on_gpu(casts.lower if casts else None), storages.resizing(), storages:
        name_model(storages, model)
        name_batch(storages, batch)
        watch_gradients(storages, model)
        yield storages, casts or nullcontext()
    gc.unfreeze()


class _Placed(Storages):
    """Storages by the very layer that made them."""

    def watch(self, model: torch.nn.Module, left: Callable[[], None] = lambda: None) -> None:
        """Know the module in which each operation runs, numbers of layers included."""
        for name, module in model.named_modules():
            module.register_forward_pre_hook(self._entering(name))
            module.register_forward_hook(self._leaving(name, left), always_call=True)


def shapes_of(model: torch.nn.Module) -> frozenset[tuple[int, ...]]:
    """Shapes of parameters, and of the same turned."""
    shapes = {tuple(each.shape) for each in model.parameters()}
    turned = {(*each[:-2], each[-1], each[-2]) for each in shapes if len(each) > 1}
    return frozenset(shapes | turned)


def _read(
    events: Sequence[Event], middle: int, subject: Subject, shapes: frozenset[tuple[int, ...]]
) -> Pass:
    made = {event.storage: None for event in events}
    index = partial(_index, re.compile(rf"{re.escape(subject.path)}\.(\d+)(\.|$)"))
    counts = {each: is_counted(each, shapes) for each in made}
    beyond = {"", subject.head, *_losses(subject.model)}
    saved: dict[int, int] = {}
    around = 0
    for storage, size in alive(events[:middle]):
        if not counts[storage]:
            continue
        layer = index(storage)
        if layer is not None:
            saved[layer] = saved.get(layer, 0) + size
        elif storage.module not in beyond and not _is_mask(storage):
            around += size
    working = working_of(events, middle, index, counts)
    working = {at: most - saved.get(at, 0) for at, most in working.items()}
    forward = forward_of(events[:middle], index, counts)
    comparing = (index(each) for each in made if _compares(each))
    return Pass(
        saved, working, forward, around, frozenset(at for at in comparing if at is not None)
    )


def _compares(storage: Storage) -> bool:
    """Whether a storage compares tokens with each other, unlike a router's softmax."""
    return bool(COMPARES.search(storage.operation)) and len(storage.shape) > _ROUTED


def is_counted(storage: Storage, shapes: frozenset[tuple[int, ...]]) -> bool:
    """Whether a storage is neither state, nor a weight expanded, cast or differentiated."""
    return storage.category in ("activations", "temporaries") and storage.shape not in shapes


def _losses(model: torch.nn.Module) -> Iterator[str]:
    """Modules that are losses, as DistilBERT's is."""
    kind = torch.nn.modules.loss._Loss  # noqa: SLF001  what all of torch's losses are
    return (name for name, module in model.named_modules() if isinstance(module, kind))


def _is_mask(storage: Storage) -> bool:
    """Whether a storage outside of the layers is as wide as it is long: the account knows masks."""
    return len(storage.shape) > 2 and storage.shape[-1] == storage.shape[-2]


def _index(pattern: re.Pattern[str], storage: Storage) -> int | None:
    found = pattern.match(storage.module)
    return int(found[1]) if found else None


def alive(events: Sequence[Event]) -> Iterator[tuple[Storage, int]]:
    """Storages that are there after some events, with their bytes."""
    sizes: dict[Storage, int] = {}
    for storage, change in events:
        sizes[storage] = sizes.get(storage, 0) + change
    return ((storage, size) for storage, size in sizes.items() if size > 0)


def working_of(
    events: Sequence[Event],
    middle: int,
    index: Callable[[Storage], int | None],
    counts: Mapping[Storage, bool],
) -> dict[int, int]:
    """The most that is alive while each layer is differentiated, beyond what waits for others."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, event in enumerate(events[middle:], middle):
        layer = index(event.storage)
        if layer is not None and event.change > 0:
            first.setdefault(layer, at)
            last[layer] = at
    forward = {event.storage for event in events[:middle]}
    live, highest = 0, dict.fromkeys(first, 0)
    waiting: dict[int, int] = {}
    for at, event in enumerate(events):
        live += event.change if counts[event.storage] else 0
        for layer, begin in first.items():
            if begin <= at <= last[layer]:
                highest[layer] = max(highest[layer], live)
    for layer, end in last.items():
        waiting[layer] = sum(
            size
            for storage, size in alive(events[: end + 1])
            if storage in forward and counts[storage] and _before(index(storage), layer)
        )
    return {layer: highest[layer] - waiting[layer] for layer in first}


def forward_of(
    events: Sequence[Event],
    index: Callable[[Storage], int | None],
    counts: Mapping[Storage, bool],
) -> dict[int, int]:
    """The most that each layer's forward pass adds to what was there before."""
    before: dict[int, int] = {}
    highest: dict[int, int] = {}
    live, now = 0, None
    for event in events:
        layer = index(event.storage) if event.change > 0 else now
        if layer is not None and layer != now:
            before[layer], highest[layer] = live, live
        now = layer
        live += event.change if counts[event.storage] else 0
        if now is not None:
            highest[now] = max(highest[now], live)
    return {layer: most - before[layer] for layer, most in highest.items()}


def _before(at: int | None, layer: int) -> bool:
    return at is None or at < layer
