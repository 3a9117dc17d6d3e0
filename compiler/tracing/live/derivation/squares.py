"""Tensors of pairs of tokens that are made outside of layers: masks, and biases on scores."""

from collections.abc import Iterable

from tunec.compiler.tracing.recording import Event, Storage


def is_mask(storage: Storage) -> bool:
    """Whether a storage outside of layers is a mask, which the account counts itself."""
    return _is_square(storage) and not _is_bias(storage)


def freed_biases(events: Iterable[Event]) -> int:
    """The bytes of the biases among some storages outside of layers that are freed again."""
    return sum(-each.change for each in events if each.change < 0 and _is_bias(each.storage))


def _is_bias(storage: Storage) -> bool:
    """Whether a square has a row for each head (transformers 5.23 `MPNetEncoder`)."""
    return _is_square(storage) and storage.shape[:-2][1:] not in ((), (1,))


def _is_square(storage: Storage) -> bool:
    return len(storage.shape) > 2 and storage.shape[-1] == storage.shape[-2]
