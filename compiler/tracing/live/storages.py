"""Follow every storage: a dispatch mode sees each operation, and hooks report the module."""

import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tunec.compiler.tracing.recording import Category, Event, Recording, Storage

_NUMBER = re.compile(r"(?:(?<=\.)|^)\d+(?=\.|$)")
_WRAPPED = re.compile(r"\b(_fsdp_wrapped_module|base_model\.model|module)\.")
_WRAPPER = "DTensor"


class Storages(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed
    """Record when each storage is made, resized and freed, and which operation made it.

    A storage lives as long as its Python object, which torch keeps as long as the C++ object.
    """

    def __init__(self, answer: Callable[[Any, Any, Any], Any] | None = None) -> None:
        super().__init__()
        self.recording = Recording()
        self.alive: dict[int, Storage] = {}
        self.phase = ""
        self.places: list[str] = []
        self.is_hidden = False
        self.passes_host = False
        """Whether storages made on the host are left out, as no device memory."""
        self.waiting: torch.Tensor | None = None
        """Inputs on the device for later micro batches."""
        self.answer = answer
        self._made_by: dict[int, str] = {}
        self._elsewhere: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(each.__name__ == _WRAPPER for each in types):
            return NotImplemented  # what it does to its local tensor comes back here
        out = self._run(func, args, kwargs or {})
        if not self.is_hidden:
            self._follow_all(out, func)
        return out

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self.answer is not None:
            answered = self.answer(func, args, kwargs)
            if answered is not NotImplemented:
                return answered
        return func(*args, **kwargs)

    def _follow_all(self, out: Any, func: Any) -> None:
        if isinstance(out, torch.Tensor):
            self.follow(out, str(func))
        elif isinstance(out, tuple | list):
            for each in out:
                self._follow_all(each, func)

    def begin(self, phase: str) -> None:
        """Enter a phase of the step."""
        self.phase = phase
        self.recording.begin(phase)

    def follow(self, value: torch.Tensor, operation: str, category: Category | None = None) -> None:
        """Record the tensor's storage, if it is new."""
        if self.passes_host and value.device.type == "cpu":
            return
        storage = value.untyped_storage()
        key = storage._cdata  # noqa: SLF001  the identity of the C++ storage
        if key in self._elsewhere:
            return
        known = self.alive.get(key)
        if known is not None:
            if known.bytes != storage.nbytes():
                self._resize(known, storage.nbytes())
            return
        made = Storage(
            storage.nbytes(),
            category or self._category(),
            self._place(),
            operation.removeprefix("aten."),
            tuple(value.shape),
            str(value.dtype).removeprefix("torch."),
        )
        self.alive[key] = made
        self.recording.events.append(Event(made, made.bytes))
        weakref.finalize(storage, self._forget, key)

    def overlook(self, value: torch.Tensor) -> torch.Tensor:
        """Ignore a tensor for its lifetime: it stands for host memory, or for no memory."""
        storage = value.untyped_storage()
        key = storage._cdata  # noqa: SLF001
        if key not in self._elsewhere:
            self._elsewhere.add(key)
            weakref.finalize(storage, self._elsewhere.discard, key)
        return value

    def overlooks(self, value: torch.Tensor) -> bool:
        """Whether a tensor is ignored."""
        return value.untyped_storage()._cdata in self._elsewhere  # noqa: SLF001

    def _category(self) -> Category:
        return "activations" if self.phase == "forward" else "temporaries"

    def _forget(self, key: int) -> None:
        storage = self.alive.pop(key, None)
        if storage is not None and storage.bytes:
            self.recording.events.append(Event(storage, -storage.bytes))

    def _resize(self, storage: Storage, size: int) -> None:
        self.recording.events.append(Event(storage, size - storage.bytes))
        storage.bytes = size

    def name(self, value: torch.Tensor, category: Category, module: str = "") -> None:
        """Set the category of a storage, such as a parameter's gradient or an optimizer's state."""
        known = self.alive.get(value.untyped_storage()._cdata)  # noqa: SLF001
        if known is not None:
            known.category = category
            known.module = module or known.module

    def settle(self, category: Category) -> None:
        """Set the category of all activations and temporaries that outlived a step."""
        for each in self.alive.values():
            if each.category in ("activations", "temporaries"):
                each.category = category

    # ── where: modules by hooks, and in backward by the autograd node's sequence number ──────────

    def _place(self) -> str:
        if self.places:
            place = self.places[-1]
            self._made_by[torch._C._autograd._get_sequence_nr()] = place  # noqa: SLF001
            return place
        node = torch._C._current_autograd_node()  # noqa: SLF001
        return "" if node is None else self._made_by.get(node._sequence_nr(), "")  # noqa: SLF001

    def watch(self, model: torch.nn.Module, left: Callable[[], None] = lambda: None) -> None:
        """Track the module in which each operation runs; `left` is called after the outermost."""
        for name, module in model.named_modules():
            path = _NUMBER.sub("{}", _WRAPPED.sub("", name))
            module.register_forward_pre_hook(self._entering(path))
            module.register_forward_hook(self._leaving(path, left), always_call=True)

    def _entering(self, path: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            self.places.append(path)

        return enter

    def _leaving(self, path: str, left: Callable[[], None]) -> Callable[..., None]:
        def leave(*_: Any) -> None:
            while self.places and self.places.pop() != path:
                pass
            if not self.places:
                left()

        return leave

    @contextmanager
    def resizing(self) -> Iterator[None]:
        """Record `UntypedStorage.resize_`, by which shards are freed and made whole."""
        plain = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            out = plain(storage, size)
            known = self.alive.get(storage._cdata)  # noqa: SLF001
            if known is not None:
                self._resize(known, storage.nbytes())
            return out

        torch.UntypedStorage.resize_ = resize
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = plain
