"""What each kind of layer keeps and works in, read off forward and backward passes on meta.

A model of a few layers runs at a few lengths, and every storage is followed to the layer that made
it. Bytes are polynomials of the length: fitted exactly at some lengths, and proven at others.
"""

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from copy import deepcopy
from functools import partial
from itertools import count
from typing import Any, Final, Self

import torch
from msgspec import Struct

from tunec.compiler.analyses.memory.arithmetic import way
from tunec.compiler.ir.slots import Quantization
from tunec.compiler.tracing.live.answers import Answers
from tunec.compiler.tracing.live.autocast import CudaAutocast
from tunec.compiler.tracing.live.bitsandbytes_layers import quantize
from tunec.compiler.tracing.live.kernels import as_on_gpu
from tunec.compiler.tracing.live.step import backward, name_batch, name_model, watch_gradients
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.recording import Event, Storage
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.models.layer_measures import Curve, Measured

_ALIGNED: Final = (640, 1216)
"""Lengths in tokens that are multiples of every chunk that is known."""
_UNALIGNED: Final = (1000, 1777, 2111)
"""Lengths that are multiples of none."""
TOLERANCE: Final = 1e-3
"""Share by which a curve may miss what a pass takes at a length that it was not fitted to."""
_CHUNKS: Final = (64,)
COMPARES: Final = re.compile("scaled_dot_product|^_softmax")
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


class Found(Struct, frozen=True):
    """What was measured of one layer."""

    measured: tuple[Measured, ...]
    attends: bool


def measures(subject: Subject, places: Sequence[int]) -> tuple[list[Found], tuple[Measured, ...]]:
    """Measure the layers at some places, and what lies around all of them, in every way.

    Raises Untraceable where a pass does not run, bytes follow no curve of the length, or two
    samples take anything but twice as much as one.
    """
    layers: list[list[Measured]] = [[] for _ in places]
    around: list[Measured] = []
    lengths = Lengths.beside(subject.model)
    attending: frozenset[int] = frozenset()
    for each in WAYS:
        passes = {length: _pass(subject, each, length) for length in lengths.all}
        name = each.named(eager=subject.eager)
        for own, at in zip(layers, places, strict=True):
            sizes = (
                {s: p.saved.get(at, 0) / s for s, p in passes.items()},
                {s: p.working.get(at, 0) / s for s, p in passes.items()},
                {s: p.forward.get(at, 0) / s for s, p in passes.items()},
            )
            own.append(Measured(name, *(fitted(each, lengths, name) for each in sizes)))
        outer = {s: p.around / s for s, p in passes.items()}
        around.append(Measured(name, fitted(outer, lengths, name)))
        if each is WAYS[0]:
            attending = passes[lengths.aligned[0]].attending
            _prove_samples(subject, passes[lengths.unaligned[0]], lengths.unaligned[0], places)
    found = [Found(tuple(m), at in attending) for m, at in zip(layers, places, strict=True)]
    return found, tuple(around)


def _prove_samples(subject: Subject, one: Pass, length: int, places: Sequence[int]) -> None:
    """Hold a pass of two samples against twice a pass of one."""
    two = _pass(subject, WAYS[0], length, samples=2)
    for at in places:
        once, twice = one.saved.get(at, 0), two.saved.get(at, 0)
        if abs(twice - 2 * once) > TOLERANCE * twice:
            raise Untraceable(f"two samples keep {twice} bytes where one keeps {once}")


class Lengths(Struct, frozen=True):
    """Lengths of the passes in tokens.

    None is a width of a parameter: gradients of weights are told from activations by their shape.
    """

    aligned: tuple[int, ...]
    unaligned: tuple[int, ...]

    @property
    def all(self) -> tuple[int, ...]:
        """All of them."""
        return (*self.aligned, *self.unaligned)

    @classmethod
    def beside(cls, model: torch.nn.Module) -> Self:
        """Lengths for a model."""
        widths = {side for each in model.parameters() for side in each.shape}

        def free(length: int, step: int) -> int:
            return next(each for each in count(length, step) if each not in widths)

        aligned = tuple(free(each, _CHUNKS[-1]) for each in _ALIGNED)
        return cls(aligned, tuple(free(each, 2) for each in _UNALIGNED))


def fitted(sizes: Mapping[int, float], lengths: Lengths, what: str) -> tuple[Curve, ...]:
    """The curves whose highest goes through bytes a token at some lengths, and holds at the others.

    One, but for what is the larger of two moments. Raises Untraceable where there is none.
    """
    first, second = lengths.aligned
    line = _line(sizes, first, second)
    chunked = (_filled(sizes, lengths, line, chunk) for chunk in _CHUNKS)
    lower = _line(sizes, first, lengths.unaligned[0])
    upper = _line(sizes, *lengths.unaligned[1:])
    for curves in ((line,), *((each,) for each in chunked), (lower, upper)):
        if _holds(curves, sizes):
            return curves
    told = ", ".join(f"{size:.0f} at {length}" for length, size in sorted(sizes.items()))
    raise Untraceable(f"bytes follow no curve of the length ({what}: {told} a token)")


def _line(sizes: Mapping[int, float], first: int, second: int) -> Curve:
    key = (sizes[second] - sizes[first]) / (second - first)
    if abs(key) * second < TOLERANCE * abs(sizes[second]) / 10:
        return Curve(sizes[second])
    return Curve(sizes[second] - key * second, key)


def _filled(sizes: Mapping[int, float], lengths: Lengths, aligned: Curve, chunk: int) -> Curve:
    """Bytes of tokens and of whole chunks, by two lengths that leave the last chunk unfilled.

    A length that fills it may take other ways: no copy is made to fill it.
    """
    first, second = lengths.unaligned[:2]
    ratios = [-(-at // chunk) * chunk / at for at in (first, second)]
    rest = [sizes[at] - aligned.key * at for at in (first, second)]
    padded = (rest[0] - rest[1]) / (ratios[0] - ratios[1])
    token = rest[0] - padded * ratios[0]
    return Curve(token, aligned.key, padded, chunk, aligned.token - token - padded)


def _holds(curves: Sequence[Curve], sizes: Mapping[int, float]) -> bool:
    return all(
        abs(max(each.at(length) for each in curves) - size) <= TOLERANCE * max(size, 1.0)
        for length, size in sizes.items()
    )


# ── one pass ─────────────────────────────────────────────────────────────────────────────────────


def _pass(subject: Subject, asked: Way, length: int, samples: int = 1) -> Pass:
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
            if isinstance(module, torch.nn.Linear) and name.startswith(subject.path)
        )
        quantize(model, list(inside), NF4)
    tokens = torch.zeros(samples, length, dtype=torch.long, device="meta")
    batch = {"input_ids": tokens, "labels": torch.zeros_like(tokens)}
    storages, casts = Placed(Answers(0)), CudaAutocast(torch.bfloat16) if asked.autocast else None
    storages.watch(model, casts.forget if casts else lambda: None)
    gc.freeze()
    with ExitStack() as stack:
        stack.enter_context(as_on_gpu(casts.lower if casts else None))
        stack.enter_context(storages.resizing())
        stack.enter_context(storages)
        name_model(storages, model)
        name_batch(storages, batch)
        watch_gradients(storages, model)
        storages.begin("forward")
        with casts or nullcontext():
            loss = model(**batch).loss
        gc.collect()
        middle = len(storages.recording.events)
        storages.begin("backward")
        with casts or nullcontext():
            backward(loss)
    gc.unfreeze()
    return _read(storages.recording.events, middle, subject, shapes)


def wanting_gradients(_: Any, __: Any, output: torch.Tensor) -> None:
    """Let gradients pass the stream, as adapters before it make them."""
    output.requires_grad_(requires_grad=True)


class Placed(Storages):
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
    saved: dict[int, int] = {}
    around = 0
    for storage, size in alive(events[:middle]):
        if not counts[storage]:
            continue
        layer = index(storage)
        if layer is not None:
            saved[layer] = saved.get(layer, 0) + size
        elif storage.module and storage.module != subject.head and not _is_mask(storage):
            around += size
    working = working_of(events, middle, index, counts)
    working = {at: most - saved.get(at, 0) for at, most in working.items()}
    forward = forward_of(events[:middle], index, counts)
    comparing = (index(each) for each in made if COMPARES.search(each.operation))
    return Pass(
        saved, working, forward, around, frozenset(at for at in comparing if at is not None)
    )


def is_counted(storage: Storage, shapes: frozenset[tuple[int, ...]]) -> bool:
    """Whether a storage is neither state, nor a weight expanded, cast or differentiated."""
    return storage.category in ("activations", "temporaries") and storage.shape not in shapes


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
