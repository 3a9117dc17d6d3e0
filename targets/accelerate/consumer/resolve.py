"""The arguments, variables and plugin that `accelerate launch` derives from its file."""

import enum
import os
import warnings
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final
from unittest.mock import patch

import accelerate
from accelerate.commands import launch as command
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import launch

from tunec.compiler.consumers.devices import declared, pretended
from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace

_FILE: Final = "accelerate.yaml"
_SCRIPT: Final = "train.py"
# What the launcher sets for its processes; the rest of the environment is this machine's.
_PREFIXES: Final = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MEGATRON_LM_")
_NAMES: Final = frozenset({"CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT"})
# How torch's launcher is told; `prepare_multi_gpu_env` and `prepare_deepspeed_cmd_env` set them.
_TORCHRUN: Final = (
    *("nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port", "rdzv_endpoint"),
    "standalone",
)


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """Pass the file to the real launcher, up to the processes that it would start.

    In: `yaml`, the text of the file; `argv`, further flags of `accelerate launch`; `files`, further
    files by their path relative to the working directory; `capability` of the device. Out:
    `version`; `refused` (None, or stage, type and message); `config`, the result of
    `load_config_from_file`; `arguments`, after the launcher has merged file and flags;
    `environment`, the variables that it sets; `torchrun`, its arguments for torch's launcher;
    `plugin`, the fields of the DeepSpeed or FSDP plugin that a process builds from these variables;
    `warnings`.
    """
    answer: dict[str, Any] = {"version": accelerate.__version__, "refused": None}
    with warnings.catch_warnings(record=True) as caught, _workplace(question):
        warnings.simplefilter("always")
        try:
            _fill(answer, question)
        except Refused as refused:
            answer["refused"] = refused.told()
    return {**answer, "warnings": sorted({str(each.message) for each in caught})}


@contextmanager
def _workplace(question: Mapping[str, Any]) -> Iterator[None]:
    """Provide a directory with the files, a free port, the declared device and own variables.

    `OMP_NUM_THREADS` is set, so that the launcher does not count the local machine's processors.
    """
    with (
        workplace({**question.get("files", {}), _FILE: question["yaml"]}),
        patch.dict(os.environ),
        patch.object(launch, "is_port_in_use", lambda *_: False),
        pretended(declared(question)),
    ):
        yield


def _fill(answer: dict[str, Any], question: Mapping[str, Any]) -> None:
    """Fill the answer step by step; raise the error at which accelerate stops."""
    with stage("load"):
        answer["config"] = _plain(load_config_from_file(_FILE).to_dict())
    with stage("merge"):
        arguments = _merged(question.get("argv", ()))
    with stage("environment"):
        environment = _environment(arguments)
    answer["arguments"] = {name: _plain(value) for name, value in vars(arguments).items()}
    answer["environment"] = _shown(environment)
    answer["torchrun"] = {name: vars(arguments).get(name) for name in _TORCHRUN}
    with stage("plugin"), patch.dict(os.environ, environment):
        answer["plugin"] = _plugin(arguments)


def _merged(argv: Any) -> Namespace:
    """Merge file and flags by the launcher's own function, as `launch_command` does next.

    accelerate 0.30.1 to 1.15.0 commands/launch.py `launch_command`.
    """
    parser = command.launch_command_parser()
    asked = parser.parse_args(["--config_file", _FILE, *argv, _SCRIPT])
    arguments, config, mixed = command._validate_launch_command(asked)  # noqa: SLF001
    named = list(config.deepspeed_config) if config else []
    told = [*named, "mixed_precision"] if mixed else named
    arguments.deepspeed_fields_from_accelerate_config = ",".join(told)
    found: Namespace = arguments
    return found


def _environment(arguments: Namespace) -> Mapping[str, str]:
    """The environment variables of each process, from the function for its kind of launch."""
    if arguments.use_deepspeed and not arguments.cpu:
        return dict(launch.prepare_deepspeed_cmd_env(arguments)[1])
    if (arguments.use_fsdp or arguments.multi_gpu) and not arguments.cpu:
        return dict(launch.prepare_multi_gpu_env(arguments))
    return dict(launch.prepare_simple_launcher_cmd_env(arguments)[1])


def _shown(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIXES) or name in _NAMES
    }


def _plugin(arguments: Namespace) -> dict[str, Any] | None:
    """The plugin that `Accelerator()` builds in a process with these variables."""
    from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin

    if arguments.use_deepspeed and not arguments.cpu:
        return _fields(DeepSpeedPlugin())
    if arguments.use_fsdp and not arguments.cpu:
        return _fields(FullyShardedDataParallelPlugin())
    return None


def _fields(plugin: Any) -> dict[str, Any]:
    """The plugin's fields as JSON; `deepspeed_config` is the DeepSpeed config that it built."""
    held = {each.name: getattr(plugin, each.name) for each in fields(plugin)}
    if held.pop("hf_ds_config", None) is not None:
        held["deepspeed_config"] = plugin.deepspeed_config
    return {name: _plain(value) for name, value in held.items()}


def _plain(value: Any) -> Any:
    """A value as JSON; enumeration members and functions become their names."""
    if isinstance(value, enum.Enum):
        return value.name
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, float) and value == float("inf"):
        return "inf"
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return plain(value)


_PROCESSES: Final = "num_processes: 2\nmixed_precision: 'no'\n"
_BARE: Final[Mapping[str, str]] = {
    "deepspeed": f"distributed_type: DEEPSPEED\n{_PROCESSES}deepspeed_config: {{}}\n",
    "fsdp": f"distributed_type: FSDP\n{_PROCESSES}fsdp_config: {{}}\n",
    "fsdp2": f"distributed_type: FSDP\n{_PROCESSES}fsdp_config: {{fsdp_version: 2}}\n",
}


def defaults(_: Mapping[str, Any]) -> dict[str, Any]:
    """The plugin's fields if the section is empty: `deepspeed`, `fsdp`, `fsdp2`.

    `fsdp2` is None before the first release with version 2.
    """
    found = {name: resolve({"yaml": text}) for name, text in _BARE.items()}
    faults = [each["refused"] for each in found.values() if each["refused"]]
    if faults:
        raise RuntimeError(f"accelerate refuses a file that says nothing: {faults}")
    told = {name: each["plugin"] for name, each in found.items()}
    if "fsdp_version" not in told["fsdp2"]:
        told["fsdp2"] = None
    return told
