"""One forward and backward pass of a model of a few layers on meta, measured layer by layer."""

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
from tunec.compiler.tracing.live.derivation.module_tree import is_plain_linear
from tunec.compiler.tracing.live.derivation.squares import freed_biases, is_mask
from tunec.compiler.tracing.live.derivation.watches import Watches, reached_by
from tunec.compiler.tracing.live.kernels import as_on_gpu
from tunec.compiler.tracing.live.sources import FEATURES, source_of
from tunec.compiler.tracing.live.step import backward, name_batch, name_model, watch_gradients
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.recording import Event, Storage
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.frozen import replace

COMPARES: Final = re.compile("scaled_dot_product|^_softmax")
_TYPES: Final = ("token_type_ids", "mm_token_type_ids")
"""Type numbers of picture and text tokens, as processors of vision models make them."""
_ROUTED: Final = 2
"""The number of dimensions of a router's output: tokens and experts."""
NF4: Final = Quantization("nf4", double=True, compute="bf16", storage=None)


class Way(Struct, frozen=True):
    """One way of computing."""

    trained: bool
    held: torch.dtype
    autocast: bool
    packed: bool

    def named(self, *, eager: bool) -> str:
        """The name by which the account requests this way."""
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
"""Trained in full or frozen below adapters; in 16 bits, under autocast, or packed by
bitsandbytes."""


class Pass(Struct, frozen=True):
    """Bytes of one pass, by the layer's place in the reduced model."""

    saved: Mapping[int, int]
    working: Mapping[int, int]
    forward: Mapping[int, int]
    around: int
    """Bytes kept by everything except layers, the head and the head's loss."""
    attending: frozenset[int]
    """Layers that compare tokens with each other, by an attention kernel or a softmax."""
    events: int
    """How often a storage was made or freed."""
    plain_loss: bool = False
    """Whether the loss uses the logits as they come, neither shifted nor in fp32."""
    stream: int = 0
    """Bytes per element of the states that the last layer reads."""
    streams: int = 1
    """The number of parallel states of the hidden width that a token has in the last layer."""
    handed: int = 0
    """Bytes of the last layer's other inputs, which other layers made."""
    calls: Mapping[str, int] = {}
    """How often each token passes a product, for products that it passes several times."""
    beside: frozenset[str] = frozenset()
    """Products that work on an encoder's input that is not text."""
    reached: frozenset[str] = frozenset()
    """Modules and parameters that got a gradient."""
    passing: int = 0
    """Bytes that wait outside of layers until all of them have run forward: biases on scores."""


class Subject(Struct, frozen=True):
    """A model of a few layers; each pass runs on a copy."""

    model: torch.nn.Module
    paths: Mapping[str, int]
    """Paths of its lists of layers, with the index at which each list's first layer is counted."""
    head: str
    eager: bool
    active: int
    """The number of experts that a token passes through; 1: no experts."""
    masked: bool = False
    """Whether a mask of padding takes memory in each of its layers."""
    asks: tuple[str, ...] = ()
    """Names of the inputs per token that its class needs besides the tokens."""
    source: int = 0
    """Positions of its encoder's input, if that is not text."""
    longest: int = 0
    """Tokens of the longest sequence that the class is made for; 0: unknown."""


class DoesNotRun(Untraceable):
    """A pass of the class raises an exception."""


def asks_of(subject: Subject, length: int) -> tuple[str, ...]:
    """The inputs that its class requests in training, by the words of its errors."""
    try:
        _pass(subject, WAYS[0], length, 1)
    except ValueError as fault:
        return tuple(name for name in _TYPES if f"`{name}` is required" in str(fault))
    except Exception:  # noqa: BLE001  `run` tells it
        return ()
    return ()


def run(subject: Subject, asked: Way, length: int, samples: int = 1) -> Pass:
    """One pass of so many samples of a length. Raises DoesNotRun with the class's exception."""
    try:
        return _pass(subject, asked, length, samples)
    except Exception as fault:
        told = f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0]}"
        name = asked.named(eager=subject.eager)
        raise DoesNotRun(f"its pass ({name}) does not run: {told}") from fault


def _pass(subject: Subject, asked: Way, length: int, samples: int) -> Pass:
    model = deepcopy(subject.model)
    shapes = shapes_of(model)
    model.to(asked.held).train()
    if not asked.trained:
        model.requires_grad_(requires_grad=False)
        for each in _embeddings(model):
            each.register_forward_hook(wanting_gradients)
    if asked.packed:
        inside = (
            name
            for name, module in model.named_modules()
            if is_plain_linear(module) and name.startswith(tuple(subject.paths))
        )
        quantize(model, list(inside), NF4)
    if not asked.trained:
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear) and name.startswith(tuple(subject.paths)):
                module.register_forward_hook(adding_gradients)
    watches = Watches(model, subject.paths, samples * length, samples * subject.source)
    batch = _batch(subject, model, asked, torch.zeros(samples, length, dtype=torch.long))
    with recorded(model, batch, autocast=asked.autocast) as (storages, casts):
        storages.begin("forward")
        watches.begin(storages, partial(_index, _patterns(subject.paths)))
        with casts:
            loss = model(**batch).loss
        gc.collect()
        middle = len(storages.recording.events)
        storages.begin("backward")
        with casts:
            backward(loss)
    found = _read(storages.recording.events, middle, subject, shapes)
    found = replace(found, calls=watches.calls, beside=watches.beside, reached=reached_by(model))
    return replace(found, stream=watches.stream, streams=watches.streams, handed=watches.handed)


def _batch(subject: Subject, model: Any, asked: Way, tokens: torch.Tensor) -> dict[str, Any]:
    """The inputs of the class: tokens, or sound and the tokens that it learns to write."""
    named = ("labels", *subject.asks) if subject.source else ("input_ids", "labels", *subject.asks)
    batch = {name: torch.zeros_like(tokens, device="meta") for name in named}
    if subject.source:
        shape, held = source_of(model).shape, torch.float32 if asked.autocast else asked.held
        batch = {FEATURES: torch.zeros(len(tokens), *shape, dtype=held, device="meta"), **batch}
    if subject.masked:
        batch["attention_mask"] = torch.ones_like(tokens, device="meta")
    return batch


def _embeddings(model: Any) -> list[torch.nn.Module]:
    """The modules that embed tokens: those of the model, or of an encoder and its decoder."""
    if not model.config.is_encoder_decoder:
        return [model.get_input_embeddings()]
    # those that transformers has wanting gradients (5.23 `enable_input_require_grads`)
    every = (model, model.get_encoder(), model.get_decoder())
    asked = (each.get_input_embeddings() for each in every if hasattr(each, "get_input_embeddings"))
    return list(dict.fromkeys(asked))


def wanting_gradients(_: Any, __: Any, output: torch.Tensor) -> None:
    """Let gradients flow through the stream, as adapters before it would."""
    output.requires_grad_(requires_grad=True)


def adding_gradients(_: Any, __: Any, output: Any) -> torch.Tensor | None:
    """Let gradients flow through what a product gives, as an adapter on it would.

    DeBERTa's layers project a table of relative positions, which no stream passes (transformers
    5.23 `modeling_deberta_v2.py`, `disentangled_attention_bias`).
    """
    # a router that is a product by its class answers twice, and takes no adapter
    if isinstance(output, tuple) or output.requires_grad or not torch.is_grad_enabled():
        return None
    added: torch.Tensor = output + output.new_zeros((), requires_grad=True)
    return added


@contextmanager
def recorded(
    model: torch.nn.Module, batch: dict[str, Any], *, autocast: bool
) -> Iterator[tuple[Storages, AbstractContextManager[Any]]]:
    """Record the storages that a pass makes and frees, as it would on a GPU.

    Yields the storages, and the context for forward and backward, which casts only under autocast.
    """
    storages, casts = _Placed(_Numbers(0)), CudaAutocast(torch.bfloat16) if autocast else None
    storages.watch(model, casts.forget if casts else lambda: None)
    gc.freeze()
    with as_on_gpu(casts), storages.resizing(), storages:
        name_model(storages, model)
        name_batch(storages, batch)
        watch_gradients(storages, model)
        yield storages, casts or nullcontext()
    gc.unfreeze()


class _Numbers(Answers):
    """Answers, and zeros for one number that is brought to the processor.

    The gradient of a factor that came from there (transformers 5.23 `modeling_diffllama.py`,
    `lambda_full`).
    """

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The answer of one operation, or NotImplemented for an operation that needs none."""
        if func is torch.ops.aten._to_copy.default and args[0].is_meta:  # noqa: SLF001
            to = kwargs.get("device")
            if args[0].dim() == 0 and to is not None and to.type == "cpu":
                return torch.zeros((), dtype=args[0].dtype)
        return super().__call__(func, args, kwargs)


class _Placed(Storages):
    """Storages by the individual layer that made them."""

    def watch(self, model: torch.nn.Module, left: Callable[[], None] = lambda: None) -> None:
        """Track the module in which each operation runs, with the numbers of layers."""
        for name, module in model.named_modules():
            module.register_forward_pre_hook(self._entering(name))
            module.register_forward_hook(self._leaving(name, left), always_call=True)


def shapes_of(model: torch.nn.Module) -> frozenset[tuple[int, ...]]:
    """Shapes of parameters, and of their transposes."""
    shapes = {tuple(each.shape) for each in model.parameters()}
    turned = {(*each[:-2], each[-1], each[-2]) for each in shapes if len(each) > 1}
    return frozenset(shapes | turned)


def _read(
    events: Sequence[Event], middle: int, subject: Subject, shapes: frozenset[tuple[int, ...]]
) -> Pass:
    made = {event.storage: None for event in events}
    index = partial(_index, _patterns(subject.paths))
    counts = {each: is_counted(each, shapes) for each in made}
    beyond = {"", subject.head, *_losses(subject.model)}
    saved: dict[int, int] = {}
    around = 0
    for storage, size in alive(events[:middle]):
        if storage.module == FEATURES:
            around += size
        if not counts[storage]:
            continue
        layer = index(storage)
        if layer is not None:
            saved[layer] = saved.get(layer, 0) + size
        elif storage.module not in beyond and not is_mask(storage):
            around += size
    working = working_of(events, middle, index, counts)
    working = {at: most - saved.get(at, 0) for at, most in working.items()}
    forward = forward_of(events[:middle], index, counts)
    comparing = (index(each) for each in made if _compares(each))
    attending = frozenset(at for at in comparing if at is not None)
    vocab = subject.model.get_submodule(subject.head).weight.shape[0]
    plain = _is_plain(made, vocab)
    found = Pass(saved, working, forward, around, attending, len(events), plain)
    apart = [each for each in events[:middle] if index(each.storage) is None]
    return replace(found, passing=freed_biases(apart))


def _is_plain(made: Iterable[Storage], vocab: int) -> bool:
    """Whether all storages as wide as the vocabulary have the dtype of a plain loss."""
    wide = [each for each in made if each.shape[-1:] == (vocab,) and len(each.shape) > 1]
    taken = {each.dtype for each in wide if each.operation.startswith("_log_softmax")}
    return bool(taken) and {each.dtype for each in wide} == taken


def _compares(storage: Storage) -> bool:
    """Whether a storage holds comparisons of tokens with each other, unlike a router's softmax."""
    return bool(COMPARES.search(storage.operation)) and len(storage.shape) > _ROUTED


def is_counted(storage: Storage, shapes: frozenset[tuple[int, ...]]) -> bool:
    """Whether a storage is neither state nor an expanded weight, a cast of one or its gradient."""
    return storage.category in ("activations", "temporaries") and storage.shape not in shapes


def _losses(model: torch.nn.Module) -> Iterator[str]:
    """Names of the modules that are losses, such as DistilBERT's."""
    kind = torch.nn.modules.loss._Loss  # noqa: SLF001  what all of torch's losses are
    return (name for name, module in model.named_modules() if isinstance(module, kind))


def _patterns(paths: Mapping[str, int]) -> list[tuple[re.Pattern[str], int]]:
    return [(re.compile(rf"{re.escape(path)}\.(\d+)(\.|$)"), at) for path, at in paths.items()]


def _index(patterns: Sequence[tuple[re.Pattern[str], int]], storage: Storage) -> int | None:
    found = ((pattern.match(storage.module), first) for pattern, first in patterns)
    return next((first + int(match[1]) for match, first in found if match), None)


def alive(events: Sequence[Event]) -> Iterator[tuple[Storage, int]]:
    """Storages that are alive after some events, with their bytes."""
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
    """The peak bytes of each layer's backward pass, beyond what waits for other layers."""
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
    """The peak bytes that each layer's forward pass adds to those alive before."""
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
