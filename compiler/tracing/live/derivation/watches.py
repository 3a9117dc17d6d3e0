"""Hooks on a pass: the inputs of the last layer, and the number of tokens in each product."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from tunec.compiler.tracing.live.step import pattern
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.recording import Storage


class Watches:
    """Hooks on the layers of a model, for one pass over so many tokens.

    `beside`: rows of an encoder's input that is not text; 0: the input is text, or there is no
    encoder.
    """

    def __init__(self, model: Any, paths: Mapping[str, int], tokens: int, beside: int = 0) -> None:
        self.tokens, self._rows_beside = tokens, beside
        self.stream = 0
        """Bytes per element of the states that the last layer reads."""
        self.streams = 1
        """The number of parallel states of the hidden width that a token has in the last layer."""
        self.handed = 0
        """Bytes of the last layer's other inputs, which other layers of its list made."""
        self._calls: dict[str, int] = {}
        self._model, self._paths = model, paths

    @property
    def calls(self) -> dict[str, int]:
        """How often each token passes a product, for products that a token passes several times."""
        beside = self.beside
        times = {p: rows // self.tokens for p, rows in self._calls.items() if p not in beside}
        return {path: each for path, each in times.items() if each > 1}

    @property
    def beside(self) -> frozenset[str]:
        """Products that work on input that is not text."""
        every = self._calls.items() if self._rows_beside else ()
        return frozenset(path for path, rows in every if rows == self._rows_beside)

    def begin(self, storages: Storages, layer_of: Callable[[Storage], int | None]) -> None:
        """Set the hooks; `layer_of` gives the layer in which a storage was made."""

        def reads(_: Any, args: Any, kwargs: Any) -> None:
            states, *others = _floating((*args, *kwargs.values()))
            self.stream = states.dtype.itemsize
            self.streams = max(states.numel() // states.shape[-1] // self.tokens, 1)
            keys = {each.untyped_storage()._cdata for each in others}  # noqa: SLF001
            keys -= {states.untyped_storage()._cdata}  # noqa: SLF001
            made = [storages.alive[key] for key in keys if key in storages.alive]
            places = {each: layer_of(each) for each in made}
            own = (each for each, at in places.items() if at is not None and at >= first)
            self.handed = sum(each.bytes for each in own)

        path, first = [*self._paths.items()][-1]
        *_, last = self._model.get_submodule(path)
        last.register_forward_pre_hook(reads, with_kwargs=True)
        for name, module in self._model.named_modules():
            inside = name.startswith(tuple(f"{path}." for path in self._paths))
            if inside and isinstance(module, torch.nn.Linear) and "expert" not in name:
                module.register_forward_hook(self._counting(name))

    def _counting(self, name: str) -> Callable[..., None]:
        rows: list[int] = []

        def seen(_: Any, __: Any, answer: Any) -> None:
            product, *_ = _floating((answer,))  # a router that is a product answers with several
            rows.append(product.numel() // product.shape[-1])
            self._calls[pattern(name)] = max(sum(rows), self._calls.get(pattern(name), 0))

        return seen


def reached_by(model: torch.nn.Module) -> frozenset[str]:
    """Modules and parameters that got a gradient, with `{}` for each number in a name."""
    named = model.named_parameters(remove_duplicate=False)
    names = [pattern(name) for name, value in named if value.grad is not None]
    return frozenset((*names, *(each.rpartition(".")[0] for each in names)))


def _floating(given: Any) -> Iterator[torch.Tensor]:
    """The floating-point tensors among the inputs, including those in tuples."""
    for each in given:
        if isinstance(each, torch.Tensor) and each.is_floating_point():
            yield each
        elif isinstance(each, tuple | list):
            yield from _floating(each)
