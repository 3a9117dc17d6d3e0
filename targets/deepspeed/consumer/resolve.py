"""The values that a DeepSpeed release derives from a configuration, or its refusal."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import deepspeed

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.refusal import OURS, Refused, told
from tunec.targets.deepspeed.consumer.engine import build
from tunec.targets.deepspeed.consumer.fields import plain
from tunec.targets.deepspeed.consumer.recorder import Path, Reading, read
from tunec.targets.deepspeed.consumer.schema import defaults
from tunec.targets.deepspeed.consumer.surface import Key, model_paths, surface

# Where DeepSpeedConfig keeps a key under another name than the file has it.
_ATTRIBUTES: Final[Mapping[str, str]] = {
    "optimizer.type": "optimizer_name",
    "scheduler.type": "scheduler_name",
}


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """Pass a configuration to the real parser and the real engine's checks.

    In: `config` (a ds_config object), `world_size` (data-parallel processes); optional `capability`
    ([major, minor] of the GPU; without it the device supports everything), `emulates_bf16`,
    `client_optimizer` (a class name of `torch.optim`), `environment`, `steps` (the number of
    learning rates to return). Out: `version`; `refused` (None, or stage, type and message);
    `values` by dotted key, including absent keys; `ignored`, the dotted keys that nothing read;
    `engine`, what the checks decided.
    """
    reading = read(question["config"], question.get("world_size", 1), marked=model_paths())
    if isinstance(reading.error, OURS):
        raise reading.error
    answer: dict[str, Any] = {
        "version": deepspeed.__version__,
        "refused": None if reading.error is None else told("config", reading.error),
        "values": {},
        "ignored": sorted(_ignored(question["config"], surface(), (), reading)),
        "engine": None,
    }
    if reading.error is None:
        answer["values"] = _values(question["config"], reading)
        answer |= _engine(question, reading)
    return answer


def _engine(question: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    device = declared(question)
    client, environment = question.get("client_optimizer"), question.get("environment", {})
    try:
        return {
            "engine": build(reading.config, device, client, environment, question.get("steps", 0))
        }
    except Refused as refused:
        return {"refused": refused.told()}


def _values(content: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """The parser's values, else the file's values, else the defaults, by dotted key."""
    found = defaults({})
    found |= {
        ".".join(path): plain(value)
        for path, value in _leaves(content, ())
        if path in reading.log.defaults
    }
    for path, model in reading.log.models.items():
        found |= {".".join(inner): value for inner, value in _leaves(plain(model), path)}
    for name in [*found, *_ATTRIBUTES]:
        attribute = _ATTRIBUTES.get(name, name)
        if hasattr(reading.config, attribute):
            found[name] = plain(getattr(reading.config, attribute))
    for name in ("optimizer", "scheduler"):
        params = plain(getattr(reading.config, f"{name}_params"))
        held = params if isinstance(params, dict) else {}
        found |= {f"{name}.params.{key}": value for key, value in held.items()}
    return found


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    else:
        yield path, value


def _ignored(
    content: Mapping[str, Any], keys: Mapping[str, Key], path: Path, reading: Reading
) -> Iterator[str]:
    """The file's keys that nothing read; models and open blocks check their own keys."""
    for name, value in content.items():
        here, key = (*path, name), keys.get(name, Key())
        if here not in reading.log.defaults:
            yield ".".join(here)
        elif isinstance(value, Mapping) and key.children and not key.is_open:
            yield from _ignored(value, key.children, here, reading)
