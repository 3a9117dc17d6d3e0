"""The JSON Schema of the file of `accelerate launch --config_file`.

It is built from ClusterConfig and the launcher's parser. The file's own keys are fields of
`ClusterConfig`; a key within a section becomes an argument of the launcher, whatever its name, so a
key that the launcher does not know has no effect.
"""

import argparse
import dataclasses
import inspect
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import accelerate
import torch
from accelerate.commands import launch as command
from accelerate.commands.config import config_args
from accelerate.utils import constants
from accelerate.utils import dataclasses as dataclasses_of_accelerate
from accelerate.utils import launch as variables

from tunec.compiler.consumers.json_types import Schema, annotations_of, any_of, json_type, plain

_SECTIONS: Final[Mapping[str, str]] = {
    "fsdp_config": "fsdp_",
    "fp8_config": "fp8_",
    "dynamo_config": "dynamo_",
    "megatron_lm_config": "megatron_lm_",
    "mpirun_config": "mpirun_",
    "parallelism_config": "parallelism_config_",
    "ipex_config": "ipex",
    "tp_config": "tp_size",
}
"""Prefixes of the launcher's arguments for each section; those of `deepspeed_config` have a
group."""
_DEEPSPEED: Final = "DeepSpeed Arguments"
_UNASKED: Final[Mapping[str, tuple[str, ...]]] = {"fsdp_config": ("fsdp_ignored_modules",)}
"""Keys that utils/launch.py reads with `getattr`, without an argument of the parser."""

_LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "fsdp_sharding_strategy": ("FSDP_SHARDING_STRATEGY",),
    "fsdp_auto_wrap_policy": ("FSDP_AUTO_WRAP_POLICY",),
    "fsdp_backward_prefetch": ("FSDP_BACKWARD_PREFETCH",),
    "fsdp_state_dict_type": ("FSDP_STATE_DICT_TYPE", "FSDP2_STATE_DICT_TYPE"),
    "deepspeed_multinode_launcher": ("DEEPSPEED_MULTINODE_LAUNCHERS",),
}
"""The lists in utils/constants.py that contain the words of a key."""
_SHARDING: Final = "fsdp_reshard_after_forward"
"""A boolean with version 2. With version 1 `accelerate config` (commands/config/cluster.py, 1.6.0
to 1.15.0) writes a word of `fsdp_sharding_strategy` there, which the launcher passes on without
effect."""
_DEVICES: Final = frozenset({"offload_optimizer_device", "offload_param_device"})
"""Keys whose value is none, cpu or nvme: the help of both arguments in commands/launch.py."""
_FILLED: Final = frozenset({"gradient_accumulation_steps", "gradient_clipping"})
"""Keys whose value may be `auto`: utils/dataclasses.py `DeepSpeedPlugin.__post_init__`."""
_OLD: Final[Mapping[str, Schema]] = {
    "fp16": {"type": "boolean"},
    "dynamo_backend": {"type": "string"},
}
"""Keys of older releases that every release still converts: `from_yaml_file`."""
_TEXT_TRUTHS: Final = frozenset({"downcast_bf16"})
"""Booleans that `accelerate config` writes as text: commands/config/cluster.py, `'no'`."""

_TRUTH: Final[Schema] = {"$ref": "#/$defs/truth"}
_WHOLE: Final[Schema] = {"$ref": "#/$defs/whole"}
_NUMBER: Final[Schema] = {"$ref": "#/$defs/number"}
_DEFS: Final[Mapping[str, Schema]] = {
    # what `str_to_bool` (utils/environment.py) takes, once the launcher has made it text
    "truth": {
        "type": ["boolean", "integer", "string"],
        "pattern": "^([yY]([eE][sS])?|[tT]([rR][uU][eE])?|[oO][nN]|[nN][oO]?"
        "|[fF]([aA][lL][sS][eE])?|[oO][fF][fF]|[01])$",
        "minimum": 0,
        "maximum": 1,
    },
    "whole": {"type": ["integer", "string"], "pattern": "^[0-9]+$"},
    "number": {
        "type": ["number", "string"],
        "pattern": r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$",
    },
}


def schema(_: Mapping[str, Any]) -> Schema:
    """The JSON Schema (draft 2020-12) of the file on a local machine or cluster."""
    parser = command.launch_command_parser()
    properties = {field.name: _property(field, parser) for field in _fields()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ClusterConfig of accelerate {accelerate.__version__}",
        "x-consumer": f"accelerate=={accelerate.__version__}",
        "x-beside": [f"torch=={torch.__version__.split('+')[0]}"],
        "x-unknown": "refused",
        "$defs": dict(_DEFS),
        "type": "object",
        "properties": {**_OLD, **properties},
        "required": [name for name in properties if not _may_miss(name)],
        "additionalProperties": False,
    }


def _fields() -> "tuple[dataclasses.Field[Any], ...]":
    return dataclasses.fields(config_args.ClusterConfig)


def _property(field: "dataclasses.Field[Any]", parser: argparse.ArgumentParser) -> Schema:
    if _is_section(field.name):
        return _section(field.name, parser)
    found = _annotated(field.name, parser)
    if field.default is dataclasses.MISSING:
        return found
    if field.default is None and "null" not in str(found):
        found = any_of([found, {"type": "null"}])
    return {**found, "default": plain(field.default)}


def _annotated(name: str, parser: argparse.ArgumentParser) -> Schema:
    """A field's schema by its annotation in ClusterConfig, or by the words of the launcher."""
    if name == "compute_environment":
        return {"enum": [config_args.ComputeEnvironment.LOCAL_MACHINE.value]}
    if name == "distributed_type":
        return dict(json_type(config_args.DistributedType) or {})
    if name == "mixed_precision":
        return _mixed(parser)
    if name in _TEXT_TRUTHS:
        return dict(_TRUTH)
    return dict(json_type(annotations_of(config_args.ClusterConfig)[name]) or {})


def _mixed(parser: argparse.ArgumentParser) -> Schema:
    """The words of `--mixed_precision`, and unquoted `no` if the release accepts it."""
    (action,) = (each for each in _actions(parser) if each.dest == "mixed_precision")
    words: list[Any] = [*sorted(action.choices or ()), None]
    took_false = _load({**_WHOLE_FILE, "mixed_precision": "no"})
    has_word = took_false is not None and took_false.mixed_precision == "no"
    return {"enum": [*words, False] if has_word else words}


def _is_section(name: str) -> bool:
    return name == "deepspeed_config" or name in _SECTIONS


# ── sections ─────────────────────────────────────────────────────────────────────────────────────


def _section(name: str, parser: argparse.ArgumentParser) -> Schema:
    """A section's schema; other keys are accepted there and have no effect."""
    properties: Schema = {}
    for action in _arguments(name, parser):
        value = {**_value(action), "default": _default(action)}
        properties[action.dest] = value
        if _takes_bare(name):
            properties[action.dest.removeprefix(_SECTIONS[name])] = value
    for key in _UNASKED.get(name, ()):
        if f'"{key}"' in inspect.getsource(variables):
            properties[key] = {"type": ["string", "null"], "default": None}
    return {
        "type": ["object", "null"],
        "properties": properties,
        "additionalProperties": True,
        "x-unknown": "ignored",
    }


def _takes_bare(section: str) -> bool:
    """Whether keys may omit the prefix: FSDP's always, others from some release on."""
    merge = inspect.getsource(command._validate_launch_command)  # noqa: SLF001
    tests = (f'name == "{section}"', f"k in defaults.{section}:\n")
    by_name, by_loop = (test in merge for test in tests)
    adds = f'arg_to_set = "{_SECTIONS.get(section)}" + arg_to_set' in merge
    return by_name or (by_loop and adds)


def _arguments(section: str, parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for group in parser._action_groups:  # noqa: SLF001
        for action in group._group_actions:  # noqa: SLF001
            if section == "deepspeed_config":
                wanted = group.title == _DEEPSPEED
            else:
                wanted = action.dest.startswith(_SECTIONS[section])
            if wanted:
                yield action


def _actions(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    return parser._actions  # noqa: SLF001


def _value(action: argparse.Action) -> Schema:
    """The values of a key: the launcher puts any value into a variable as text."""
    found = [_text(action)]
    if action.dest in _FILLED:
        found.append({"const": "auto"})
    if action.dest == _SHARDING:
        found.append({"enum": list(constants.FSDP_SHARDING_STRATEGY)})
    if action.default is None:
        found.append({"type": "null"})
    return any_of(found)


def _text(action: argparse.Action) -> Schema:
    if action.choices or action.dest in _LISTS or action.dest in _DEVICES:
        return {"enum": _words(action)}
    if _is_truth(action):
        return dict(_TRUTH)
    if action.type in (int, float):
        return dict(_WHOLE if action.type is int else _NUMBER)
    if isinstance(action.default, tuple):
        return {"type": ["array", "string"]}
    return {"type": "string"}


def _is_truth(action: argparse.Action) -> bool:
    """Whether an argument is a boolean, such as `--zero3_init_flag`.

    Its type is bool, its help contains `(true|false)`, or its default is one of these texts.
    """
    if action.nargs == 0 or action.type is bool:
        return True
    is_said = action.type is str and "(true|false)" in (action.help or "")
    return is_said or str(action.default).lower() in ("true", "false")


def _words(action: argparse.Action) -> list[Any]:
    words = [str(each) for each in action.choices or ()]
    for each in _LISTS.get(action.dest, ()):
        words += [word for word in getattr(constants, each, ()) if word not in words]
    if action.dest in _DEVICES:
        words = ["none", "cpu", "nvme"]
    if _in_any_case(action.dest):
        words += [other for word in words for other in (word.lower(), word.upper())]
    words = [*dict.fromkeys(words), *(str(number) for number in _numbers(action.dest))]
    return [*words, *(int(word) for word in words if word.isdigit())]


def _numbers(key: str) -> Iterable[int]:
    """The numbers from 1 that stand for a key's words; NO_PREFETCH has no number."""
    if key not in _LISTS or f"{key.removeprefix('fsdp_')}.isdigit()" not in _plugin():
        return ()
    words = [word for word in getattr(constants, _LISTS[key][0]) if word != "NO_PREFETCH"]
    return range(1, len(words) + 1)


def _in_any_case(key: str) -> bool:
    """Whether the release accepts a key's words in any case, by converting them to upper case."""
    if key == "dynamo_backend":
        return True  # utils/launch.py: `DynamoBackend(args.dynamo_backend.upper())`
    return f"{key.removeprefix('fsdp_')}.upper()" in _plugin()


def _plugin() -> str:
    return inspect.getsource(dataclasses_of_accelerate.FullyShardedDataParallelPlugin)


def _default(action: argparse.Action) -> Any:
    """The default in the file's types: `false` if the argument's default is the text `false`."""
    value = plain(action.default)
    if _text(action) == _TRUTH and isinstance(value, str):
        return value.lower() == "true"
    if _text(action) == _WHOLE and isinstance(value, float):
        return int(value)
    return value


# ── what may be left out ─────────────────────────────────────────────────────────────────────────

_WHOLE_FILE: Final[Mapping[str, str]] = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "MULTI_GPU",
    "mixed_precision": "'no'",
    "use_cpu": "false",
    "debug": "false",
    "num_processes": "2",
}


def _may_miss(name: str) -> bool:
    """Whether the release loads a file without a key."""
    return _load({key: value for key, value in _WHOLE_FILE.items() if key != name}) is not None


def _load(values: Mapping[str, str]) -> Any:
    """The config that the release loads from these values as YAML; None if it refuses them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "accelerate.yaml")
        path.write_text("".join(f"{key}: {value}\n" for key, value in values.items()), "utf-8")
        try:
            return config_args.load_config_from_file(str(path))
        except (TypeError, ValueError, KeyError):
            return None
