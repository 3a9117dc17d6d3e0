"""Reading a ds_config through the real `DeepSpeedConfig`, each key it asks for written down.

`DeepSpeedConfig` takes a dictionary and leaves a key that it does not know alone, without a word.
So the dictionary it gets here records each question put to it: which keys exist at that release,
with which default, is then an observation.
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
"""The default of a key that was only tested for: whoever tests it knows what absence means."""

_MARK: Final = "__tunec_block__"


@dataclass(slots=True)
class Log:
    """What was asked of one configuration."""

    defaults: dict[Path, Any] = field(default_factory=dict)
    """Every key asked for, with the default that the asker named or UNSTATED."""
    whole: set[Path] = field(default_factory=set)
    """Blocks whose keys were enumerated, whatever they are called."""
    copied: set[Path] = field(default_factory=set)
    """Blocks that were copied, that is passed on with whatever else they hold."""
    models: dict[Path, Any] = field(default_factory=dict)
    """Marked blocks that became a pydantic model, with that model's instance."""

    def ask(self, path: Path, default: Any) -> None:
        """Note a question; a named default outweighs an unstated one."""
        if self.defaults.get(path, UNSTATED) is UNSTATED:
            self.defaults[path] = default


class Recording(dict[str, Any]):
    """A dictionary that writes into a log what is asked of it; copies share the log."""

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
        """As a dictionary does, and noted."""
        self.log.ask((*self.path, key), default)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        """As a dictionary does, and noted."""
        self.log.ask((*self.path, key), default[0] if default else UNSTATED)
        return super().pop(key, *default)

    # Nothing but an override: over dict's own __iter__ CPython unpacks `**block` without calling
    # keys().
    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def keys(self) -> Any:
        """A view that notes a membership test key by key, and iteration as taking all."""
        return _Keys(self)

    def items(self) -> Any:
        """As a dictionary does, noted as taking all."""
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
    """What came of a configuration: the object or the refusal, and what was asked."""

    config: Any
    error: Exception | None
    log: Log


def read(content: dict[str, Any], world_size: int = 1, marked: Collection[Path] = ()) -> Reading:
    """Hand `content` to DeepSpeedConfig as one of `world_size` processes would.

    The blocks at `marked` carry a mark by which the model that they become is known; a block that
    becomes none must not have one.
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
    """Let `deepspeed.comm` count `size` processes; without a process group it refuses to."""
    with (
        patch.object(deepspeed.comm, "get_rank", lambda *_, **__: 0),
        patch.object(deepspeed.comm, "get_world_size", lambda *_, **__: size),
    ):
        yield


@contextmanager
def _watched(log: Log) -> Iterator[None]:
    """Note which model each marked block becomes: of pydantic's old kind up to 0.14."""
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
