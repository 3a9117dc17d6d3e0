"""The values that a transformers release derives from training arguments and their ds_config."""

import enum
import os
import warnings
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import transformers
from transformers import AutoConfig, HfArgumentParser
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.huggingface.consumer.classes import find, version
from tunec.targets.huggingface.consumer.hardware import machine

# Values by which `automatic` sees a key filled in: any would do, for only the keys are looked at.
_SOME_STEPS: Final = 100
_SOME_SIZE: Final = 64


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """Pass training arguments to the real parser, and the ds_config to the real "auto" filling.

    In: `class` (default TrainingArguments); one of `yaml`, `json` (the text of a file), `argv` (a
    list) or `arguments` (an object); `files`, further files by their path relative to the working
    directory; `world_size`; `capability`, `emulates_bf16`; for the ds_config also `model_config` (a
    config.json object or an object with `hidden_size`) and `max_steps` (optimizer steps of the
    run). Out: `version`; `refused` (None, or stage, type and message); `values` of all fields;
    `warnings`; `derived` (what the class computes from them); `deepspeed`, the ds_config that the
    engine would get.
    """
    answer = nothing_yet()
    name = question.get("class", "TrainingArguments")
    with warnings.catch_warnings(record=True) as caught, workplace(question.get("files", {})):
        warnings.simplefilter("always")
        with machine(declared(question), question.get("world_size", 1)):
            try:
                _fill(answer, name, question)
            except Refused as refused:
                answer["refused"] = refused.told()
    said = [str(each.message) for each in caught if issubclass(each.category, FutureWarning)]
    return {**answer, "class_version": version(name), "warnings": sorted(set(said))}


def nothing_yet() -> dict[str, Any]:
    """The initial answer: the release, no values, and no refusal."""
    return {
        "version": transformers.__version__,
        "refused": None,
        "values": {},
        "derived": {},
        "deepspeed": None,
    }


def _fill(answer: dict[str, Any], name: str, question: Mapping[str, Any]) -> None:
    """Fill the answer step by step; raise the error at which the consumer stops."""
    kind = find(name)
    if kind is None:
        raise Refused("class", ImportError(f"no class {name} in this release"))
    with stage("parse"):
        (held,) = _parse(HfArgumentParser([kind]), question)
    answer["values"] = {key.name: plain(getattr(held, key.name, None)) for key in fields(held)}
    answer |= settled(held, question)


def _parse(parser: Any, question: Mapping[str, Any]) -> Any:
    """Parse by the entry point that a training script would use for the kind of input."""
    if "argv" in question:
        return parser.parse_args_into_dataclasses(
            args=list(question["argv"]), look_for_args_file=False
        )
    if "arguments" in question:
        return parser.parse_dict(dict(question["arguments"]))
    kind = "yaml" if "yaml" in question else "json"
    path = Path(f"arguments.{kind}")
    path.write_text(question[kind], encoding="utf-8")
    return (
        parser.parse_yaml_file(str(path)) if kind == "yaml" else parser.parse_json_file(str(path))
    )


def settled(held: Any, question: Mapping[str, Any]) -> dict[str, Any]:
    """The consequences of arguments: `derived`; `deepspeed`, the ds_config for the engine; `fsdp`.

    `fsdp` holds the fields of accelerate's plugin that the Trainer builds from `fsdp_plugin_args`,
    or until 4.57 from variables, with the changes that it then makes itself.

    Of the question `model_config` and `max_steps` are read. Raises Refused.
    """
    steps = question.get("max_steps") or _SOME_STEPS
    found: dict[str, Any] = {"derived": _derived(held, steps), "deepspeed": None}
    if getattr(held, "deepspeed", None):
        found["deepspeed"] = _finalized(held, question.get("model_config"), steps)
    if getattr(held, "fsdp", None):
        found["fsdp"] = _plugin(held)
    return found


def _plugin(held: Any) -> dict[str, Any]:
    from accelerate.utils import FullyShardedDataParallelPlugin

    with stage("fsdp"):
        plugin = FullyShardedDataParallelPlugin(**(getattr(held, "fsdp_plugin_args", None) or {}))
        if not {"activation_checkpointing"} & set(getattr(held, "fsdp_plugin_args", None) or {}):
            name = "activation_checkpointing"
            setattr(plugin, name, held.fsdp_config.get(name, getattr(plugin, name)))
        held = {each.name: _shown(getattr(plugin, each.name)) for each in fields(plugin)}
        return {**held, "environment": _variables()}


def _variables() -> dict[str, str]:
    """The variables of FSDP.

    Before 0.34 accelerate's plugin reads the wrap policy from them only when it is given the model.
    """
    return {name: value for name, value in os.environ.items() if name.startswith("FSDP_")}


def _shown(value: Any) -> Any:
    """A value as JSON; enumeration members and functions become their names."""
    if isinstance(value, enum.Enum):
        return value.name
    return getattr(value, "__name__", type(value).__name__) if callable(value) else plain(value)


def _derived(held: Any, steps: int) -> dict[str, Any]:
    """Values that the class computes: warm-up steps, number of processes, batch per process."""
    if not hasattr(held, "get_warmup_steps"):
        return {}
    with stage("derive"):
        return {
            "warmup_steps": plain(held.get_warmup_steps(steps)),
            "world_size": held.world_size,
            "train_batch_size": held.train_batch_size,
            "parallel_mode": plain(held.parallel_mode),
            "device": str(held.device),
        }


def _finalized(held: Any, model_config: Mapping[str, Any] | None, steps: int) -> Any:
    """The ds_config once model and steps are known, as the Trainer completes it before training."""
    config = held.hf_deepspeed_config
    with stage("deepspeed"):
        config.trainer_config_finalize(held, SimpleNamespace(config=_model(model_config)), steps)
    return plain(config.config)


def _model(content: Mapping[str, Any] | None) -> Any:
    if content is None:
        return SimpleNamespace()
    if "model_type" not in content:
        return SimpleNamespace(**content)
    return AutoConfig.for_model(**content)


def automatic(_: Mapping[str, Any]) -> list[str]:
    """The dotted keys of a ds_config that may be "auto" because the release fills them in."""
    asked: list[str] = []

    def note(_: Any, key: str, *__: Any, **___: Any) -> None:
        asked.append(key)

    content = {"zero_optimization": {"stage": 3} | dict.fromkeys(_BY_SIZE, "auto")}
    with (
        machine(declared({}), 1),
        patch.object(HfTrainerDeepSpeedConfig, "fill_match", note),
        patch.object(HfTrainerDeepSpeedConfig, "fill_only", note),
    ):
        held = find("TrainingArguments")(output_dir="out", fp16=True)
        config = HfTrainerDeepSpeedConfig(content)
        config.trainer_config_process(held)
        model = SimpleNamespace(config=SimpleNamespace(hidden_size=_SOME_SIZE))
        config.trainer_config_finalize(held, model, _SOME_STEPS)
    return sorted(set(asked))


# Without one of these saying "auto" the finalizing code does not reach the three:
# `hidden_size_based_keys` in integrations/deepspeed.py.
_BY_SIZE: Final = (
    "reduce_bucket_size",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
)
