"""Reading a ds_config through the real `DeepSpeedConfig`, with a log of each key that it reads.

`DeepSpeedConfig` takes a dictionary and silently ignores a key that it does not know. The
dictionary here records each access, so that the keys of a release, with their defaults, are
observed.
"""

from collections.abc import Collection, Iterator, KeysView
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final
from unittest.mock import patch

import deepspeed.comm
import pydantic
import pydantic.v1
from deepspeed.runtime.config import DeepSpeedConfig

Path = tuple[str, ...]

UNSTATED: Final = object()
"""The default of a key that was only tested for presence: the testing code decides what absence
means."""

_MARK: Final = "__tunec_block__"


@dataclass(slots=True)
class Log:
    """The accesses to one configuration."""

    defaults: dict[Path, Any] = field(default_factory=dict)
    """Every key that was read, with the default that the reader named or UNSTATED."""
    whole: set[Path] = field(default_factory=set)
    """Blocks that were enumerated, whatever keys they have."""
    copied: set[Path] = field(default_factory=set)
    """Blocks that were copied, and so passed on with all their keys."""
    models: dict[Path, Any] = field(default_factory=dict)
    """Marked blocks that became a pydantic model, with the model's instance."""

    def ask(self, path: Path, default: Any) -> None:
        """Record a read of a key; a named default replaces an unstated one."""
        if self.defaults.get(path, UNSTATED) is UNSTATED:
            self.defaults[path] = default


class Recording(dict[str, Any]):
    """A dictionary that logs every access to it; copies share the log."""

    def __init__(self, content: dict[str, Any], path: Path, log: Log) -> None:
        super().__init__()
        self.path = path
        self.log = log
        for key, value in content.items():
            self[key] = value

    def __setitem__(self, key: str, value: Any) -> None:
        plain = isinstance(value, dict) and not isinstance(value, Recording)
        super().__setitem__(key, Recording(value, (*self.path, key), self.log) if plain else value)

    def __getitem__(self, key: str) -> Any:
        self.log.ask((*self.path, key), UNSTATED)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.log.ask((*self.path, str(key)), UNSTATED)
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """`dict.get`, logged."""
        self.log.ask((*self.path, key), default)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        """`dict.pop`, logged."""
        self.log.ask((*self.path, key), default[0] if default else UNSTATED)
        return super().pop(key, *default)

    # Nothing but an override: over dict's own __iter__ CPython unpacks `**block` without calling
    # keys().
    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def keys(self) -> Any:
        """A view that logs membership tests by key, and iteration as a read of the whole block."""
        return _Keys(self)

    def items(self) -> Any:
        """`dict.items`, logged as a read of the whole block."""
        self.log.whole.add(self.path)
        return super().items()

    def __copy__(self) -> "Recording":
        self.log.copied.add(self.path)
        return Recording(dict(super().items()), self.path, self.log)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Recording":
        return self.__copy__()


class _Keys(KeysView[str]):
    _mapping: Recording

    def __iter__(self) -> Iterator[str]:
        self._mapping.log.whole.add(self._mapping.path)
        return dict.__iter__(self._mapping)


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading a configuration: the object or the refusal, and the log of accesses."""

    config: Any
    error: Exception | None
    log: Log


def read(content: dict[str, Any], world_size: int = 1, marked: Collection[Path] = ()) -> Reading:
    """Pass `content` to DeepSpeedConfig as one of `world_size` processes would.

    Each block at a path in `marked` gets a mark that identifies the model that it becomes; a block
    that becomes no model must not be marked.
    """
    log = Log()
    recording = Recording(content, (), log)
    for path in marked:
        _mark(recording, path)
    with _watched(log), world(world_size):
        try:
            return Reading(DeepSpeedConfig(recording), None, log)
        except Exception as error:  # noqa: BLE001  whatever it raises is its answer
            return Reading(None, error, log)


def _mark(recording: Any, path: Path) -> None:
    for name in path:
        if not isinstance(recording, dict):
            return
        recording = dict.get(recording, name)
    if isinstance(recording, dict):
        dict.__setitem__(recording, _MARK, path)


@contextmanager
def world(size: int) -> Iterator[None]:
    """Make `deepspeed.comm` report `size` processes, which otherwise needs a process group."""
    with (
        patch.object(deepspeed.comm, "get_rank", lambda *_, **__: 0),
        patch.object(deepspeed.comm, "get_world_size", lambda *_, **__: size),
    ):
        yield


@contextmanager
def _watched(log: Log) -> Iterator[None]:
    """Record the model that each marked block becomes; up to 0.14 it is pydantic's old kind."""
    with ExitStack() as stack:
        for base in (pydantic.BaseModel, pydantic.v1.BaseModel):
            stack.enter_context(patch.object(base, "__init__", _noting(base.__init__, log)))
        yield


def _noting(original: Any, log: Log) -> Any:
    @wraps(original)
    def init(self: Any, /, **data: Any) -> None:
        path = data.pop(_MARK, None)
        original(self, **data)
        if path is not None:
            log.models[tuple(path)] = self

    return init
