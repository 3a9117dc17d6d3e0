"""The keys that a DeepSpeed release reads, found by giving its parser one more block at a time."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import deepspeed
from deepspeed.runtime.config import DeepSpeedConfigError

from tunec.targets.deepspeed.consumer.recorder import UNSTATED, Path, Reading, read

BASE: Final[Mapping[str, Any]] = {"train_micro_batch_size_per_gpu": 1}
"""The smallest configuration that DeepSpeedConfig accepts: one of the two batch sizes."""

# Keys whose presence makes the parser ask for others in the same block. The modes are those of
# sparse attention up to 0.18 (`get_sparse_attention` in runtime/config.py); `initial_scale_power`
# is one of the keys on which `get_dynamic_loss_scale_args` of 0.14 to 0.16 reads the others.
_SWITCHES: Final[tuple[Mapping[str, Any], ...]] = (
    {"enabled": False},
    {"enabled": True},
    {"enabled": True, "initial_scale_power": 16},
    {"type": "Adam"},
    *({"mode": mode} for mode in ("dense", "fixed", "variable", "bigbird", "bslongformer")),
)


# Blocks that the parser keeps as they are, for a class of another name to take apart.
PASSED_ON: Final = frozenset({("optimizer", "params"), ("scheduler", "params")})


@dataclass(slots=True)
class Key:
    """One key: a value, a block with its own keys, or a block that a pydantic model checks."""

    default: Any = UNSTATED
    model: Any = None
    """The model instance that an empty block becomes."""
    children: dict[str, "Key"] = field(default_factory=dict)
    is_open: bool = False
    """Whether the block may have keys that were not observed: it is read whole, or could not be
    explored completely."""
    is_removed: bool = False
    """Whether the release refuses the key, whatever its value."""


@cache
def surface() -> Mapping[str, Key]:
    """Every key that the installed DeepSpeed reads, from the root."""
    root = Key()
    _add(root, (), read(dict(BASE)))
    for name in _read_before_the_config():
        root.children.setdefault(name, Key())
    _grow(root, ())
    return root.children


def model_paths() -> frozenset[Path]:
    """The paths of the blocks that a pydantic model checks."""
    return frozenset(path for path, key in walk(surface()) if key.model is not None)


def walk(keys: Mapping[str, Key], path: Path = ()) -> Iterator[tuple[Path, Key]]:
    """Every key with its path, parents first."""
    for name, key in keys.items():
        yield (*path, name), key
        yield from walk(key.children, (*path, name))


def _read_before_the_config() -> list[str]:
    """The keys that `deepspeed.initialize` itself reads, before there is a DeepSpeedConfig."""
    return re.findall(r'"(\w+)" in config\b', inspect.getsource(deepspeed.initialize))


def _grow(parent: Key, path: Path) -> None:
    for name, key in parent.children.items():
        here = (*path, name)
        if here in PASSED_ON:
            key.is_open = True
        elif key.default is UNSTATED or key.default is None or isinstance(key.default, dict):
            _enter(key, here)
            _grow(key, here)


def _enter(key: Key, path: Path) -> None:
    """Find how the parser treats an empty block at `path`, then which keys its switches reveal."""
    key.model = read(_at(path, {}), marked=[path]).log.models.get(path)
    if key.model is not None:
        return
    plain = read(_at(path, {}))
    key.is_removed = _refused(path, plain)
    if key.is_removed:
        return
    key.is_open = path in plain.log.whole
    if key.is_open:
        return
    _add(key, path, plain)
    for switches in _SWITCHES:
        if _leads_on(key, switches):
            switched = read(_at(path, dict(switches)))
            _add(key, path, switched)
            key.is_open |= path in switched.log.copied
            key.is_open |= (
                bool(key.children)
                and switched.error is not None
                and switches.get("enabled") is True
            )


def _leads_on(key: Key, switches: Mapping[str, Any]) -> bool:
    """Whether the block read all these switches, or is empty and `enabled` is the only switch."""
    return all(name in key.children for name in switches) or (
        not key.children and set(switches) == {"enabled"}
    )


def _refused(path: Path, reading: Reading) -> bool:
    values: tuple[Any, ...] = (False, None)
    errors = [reading.error, *(read(_at(path, value)).error for value in values)]
    return all(isinstance(error, DeepSpeedConfigError) for error in errors)


def _add(key: Key, path: Path, reading: Reading) -> None:
    for asked, default in reading.log.defaults.items():
        if len(asked) == len(path) + 1 and asked[: len(path)] == path:
            child = key.children.setdefault(asked[-1], Key())
            if child.default is UNSTATED:
                child.default = default


def _at(path: Path, value: Any) -> dict[str, Any]:
    """The base configuration with `value` at `path`, and the parent blocks enabled."""
    content: dict[str, Any] = dict(BASE)
    block = content
    for name in path[:-1]:
        parent = {"type": "Adam"} if name in ("optimizer", "scheduler") else {"enabled": True}
        block = block.setdefault(name, parent)
    block[path[-1]] = value
    return content
