"""The JSON Schema of ds_config.json, and each key's default, from the installed release.

The schema also rejects keys that the release itself would not refuse: DeepSpeed silently ignores an
unknown key at the top, or in a block without a model, and that is the mistake worth catching.
`x-unknown` tells the two cases apart: refused or ignored.
"""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

import deepspeed
import torch
from deepspeed.runtime import lr_schedules
from deepspeed.runtime.config import DEEPSPEED_OPTIMIZERS, DtypeEnum

from tunec.compiler.consumers.json_types import Schema
from tunec.targets.deepspeed.consumer.fields import json_type, model_schema, plain
from tunec.targets.deepspeed.consumer.recorder import UNSTATED, Path, read
from tunec.targets.deepspeed.consumer.surface import BASE, Key, surface, walk

_DTYPES: Final = sorted(name for name in DtypeEnum._value2member_map_ if isinstance(name, str))
_DTYPE: Final = {"enum": [*_DTYPES, None]}
_COUNT: Final = {"type": "integer", "exclusiveMinimum": 0}
_NUMBER: Final = {"type": "number"}
_NOT_NEGATIVE: Final = {"type": "number", "minimum": 0}
_WHOLE_OR_NULL: Final = {"type": ["integer", "null"]}
_TEXT: Final = {"type": "string"}
_TEXT_OR_NULL: Final = {"type": ["string", "null"]}
_TEXTS: Final = {"type": "array", "items": _TEXT}

# Types of the keys whose default does not tell: it is None, or not stated, or an integer where any
# number is taken. Each from the code that reads the key, in deepspeed 0.14.5 and 0.19.8.
_TYPES: Final[Mapping[str, Schema]] = {
    # runtime/config.py, _batch_assertion
    "train_batch_size": _COUNT,
    "train_micro_batch_size_per_gpu": _COUNT,
    "gradient_accumulation_steps": _COUNT,
    # __init__.py, initialize: the dimensions of the device mesh
    "sequence_parallel_size": _COUNT,
    "data_parallel_size": _COUNT,
    # runtime/engine.py: the property of the same name
    "steps_per_print": _WHOLE_OR_NULL,
    "gradient_clipping": _NOT_NEGATIVE,
    # runtime/config.py, _do_warning_check
    "vocabulary_size": _WHOLE_OR_NULL,
    # utils/logging.py, set_log_level_from_string
    "log_level": _TEXT_OR_NULL,
    # datastates/config.py, DeepSpeedDataStatesConfig
    "datastates_ckpt": {"type": ["object", "boolean"]},
    # runtime/engine.py: get_data_types, _assert_valid_mixed_precision_config,
    # _mixed_precision_dtypes
    "data_types.grad_accum_dtype": _DTYPE,
    "data_types.param_dtype": _DTYPE,
    "data_types.buffer_dtype": _DTYPE,
    # runtime/config.py, _initialize_params
    "data_types.keep_in_fp32_modules": {"anyOf": [{"const": "auto"}, _TEXTS]},
    # runtime/activation_checkpointing/checkpointing.py, configure
    "activation_checkpointing.number_checkpoints": _WHOLE_OR_NULL,
    # runtime/config.py, get_lower_precision_safe_modules
    "torch_autocast.lower_precision_safe_modules": _TEXTS,
    # runtime/fp16/loss_scaler.py: any number up to 0.17.0; then fields of a model
    "fp16.loss_scale": _NOT_NEGATIVE,
    "fp16.min_loss_scale": _NUMBER,
    # runtime/engine.py: _configure_basic_optimizer, _configure_fp16_optimizer,
    # _scheduler_from_config
    "optimizer.type": _TEXT,
    "optimizer.legacy_fusion": {"type": "boolean"},
    "scheduler.type": _TEXT,
    # paths of files
    "flops_profiler.output_file": _TEXT_OR_NULL,
    "autotuning.metric_path": _TEXT_OR_NULL,
    "autotuning.model_info_path": _TEXT_OR_NULL,
    "nebula.nebula_load_path": _TEXT_OR_NULL,
    "nebula.persistent_storage_path": _TEXT_OR_NULL,
}

# Values tried one by one against the real parser; those it takes make the enumeration.
_CANDIDATES: Final[Mapping[str, tuple[Any, ...]]] = {
    "communication_data_type": ("fp32", "fp16", "bf16", "bfp16", None),
    "seq_parallel_communication_data_type": ("fp32", "fp16", "bf16", "bfp16"),
    "seq_parallel_comm_data_type": ("fp32", "fp16", "bf16", "bfp16"),
    "gradient_allreduce_op": ("mean", "sum", "avg", "max"),
    "checkpoint.tag_validation": ("Ignore", "IGNORE", "Warn", "WARN", "Fail", "FAIL"),
    "torch_autocast.dtype": tuple(_DTYPES),
}


def schema(_: Mapping[str, Any]) -> Schema:
    """The JSON Schema (draft 2020-12) for plain DeepSpeed, in which "auto" is not a value."""
    refused = sorted(name for name, key in surface().items() if key.is_removed)
    properties = {name: _of(key, (name,)) for name, key in surface().items() if not key.is_removed}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ds_config.json of deepspeed {deepspeed.__version__}",
        "x-consumer": f"deepspeed=={deepspeed.__version__}",
        "x-refused": refused,
        "x-unknown": "ignored",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "anyOf": [
            {"required": ["train_batch_size"]},
            {"required": ["train_micro_batch_size_per_gpu"]},
        ],
    }


def defaults(_: Mapping[str, Any]) -> dict[str, Any]:
    """Each key's value if it is absent, by dotted path; None if the key's reader decides."""
    found = {
        ".".join(path): _stated(key.default) for path, key in walk(surface()) if _is_value(key)
    }
    for path, key in walk(surface()):
        if key.model is not None:
            found |= dict(_flat(plain(key.model), path))
    config = read(dict(BASE)).config
    found |= {name: plain(getattr(config, name)) for name in found if hasattr(config, name)}
    for name in BASE:
        found[name] = None
    found["train_batch_size"] = None
    return found


def _stated(default: Any) -> Any:
    return None if default is UNSTATED else plain(default)


def _is_value(key: Key) -> bool:
    return not (
        key.children or key.is_removed or key.is_open or key.model or isinstance(key.default, dict)
    )


def _flat(value: Any, path: Path) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(inner, (*path, name))
    else:
        yield ".".join(path), value


def _of(key: Key, path: Path) -> Schema:
    dotted = ".".join(path)
    if dotted in _PASSED_ON:
        return _PASSED_ON[dotted]()
    if key.model is not None:
        return {**model_schema(type(key.model)), "x-unknown": "refused"}
    if key.children or key.is_open or isinstance(key.default, dict):
        return _block(key, path)
    return _value(key, dotted)


def _block(key: Key, path: Path) -> Schema:
    properties = {name: _of(child, (*path, name)) for name, child in key.children.items()}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": key.is_open,
        "x-unknown": "ignored",
    }


def _value(key: Key, dotted: str) -> Schema:
    found: Schema = _enumeration(dotted) or dict(_TYPES.get(dotted) or _type_of(key.default))
    return found if key.default is UNSTATED else {**found, "default": plain(key.default)}


def _type_of(default: Any) -> Schema:
    return {} if default is UNSTATED or default is None else json_type(type(default)) or {}


def _enumeration(dotted: str) -> Schema:
    taken = [value for value in _CANDIDATES.get(dotted, ()) if _is_taken(dotted.split("."), value)]
    return {"enum": taken} if taken else {}


def _is_taken(path: list[str], value: Any) -> bool:
    content: dict[str, Any] = dict(BASE)
    block = content
    for name in path[:-1]:
        block = block.setdefault(name, {"enabled": True})
    block[path[-1]] = value
    return read(content).error is None


def _optimizer() -> Schema:
    """The optimizer block, closed for each of DeepSpeed's optimizers and open for torch's."""
    block: Schema = _named(
        {"type": _TYPES["optimizer.type"], "legacy_fusion": _TYPES["optimizer.legacy_fusion"]}
    )
    block["allOf"] = [
        _given(_any_case(name), _closed(params)) for name, params in sorted(_optimizers().items())
    ]
    return block


def _scheduler() -> Schema:
    """The scheduler block, closed for each of DeepSpeed's schedules and open for torch's."""
    block: Schema = _named({"type": _TYPES["scheduler.type"]})
    known = {
        name: _parameters(getattr(lr_schedules, name), "optimizer")
        for name in lr_schedules.VALID_LR_SCHEDULES
    }
    block["allOf"] = [
        _given({"const": name}, _closed(params)) for name, params in sorted(known.items())
    ]
    return block


_PASSED_ON: Final = {"optimizer": _optimizer, "scheduler": _scheduler}


def _named(properties: Schema) -> Schema:
    properties = {**properties, "params": {"type": "object"}}
    return {
        "type": "object",
        "properties": properties,
        "required": ["type"],
        "additionalProperties": False,
        "x-unknown": "ignored",
    }


def _given(name: Schema, params: Schema) -> Schema:
    return {"if": {"properties": {"type": name}}, "then": {"properties": {"params": params}}}


def _closed(properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "x-unknown": "refused",
    }


def _any_case(name: str) -> Schema:
    """A pattern for a name in any case: DeepSpeedConfig compares known names in lower case."""
    letters = "".join(f"[{each}{each.upper()}]" if each.isalpha() else each for each in name)
    return {"pattern": f"^{letters}$"}


def _optimizers() -> dict[str, dict[str, Schema]]:
    """The parameters of each optimizer name, over all classes that the name may stand for."""
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion

    adam = (FusedAdam, DeepSpeedCPUAdam, torch.optim.AdamW)
    # `torch_adam` and `adam_w_mode` are taken out before the class is called: runtime/engine.py,
    # _configure_basic_optimizer.
    flags: dict[str, Schema] = {
        "torch_adam": {"type": "boolean", "default": False},
        "adam_w_mode": {"type": "boolean", "default": True},
    }
    classes = {
        "adam": adam,
        "adamw": adam,
        "adagrad": (torch.optim.Adagrad, DeepSpeedCPUAdagrad),
        "lamb": (FusedLamb,),
        "lion": (FusedLion, DeepSpeedCPULion),
    }
    found = {name: _union(kinds) for name, kinds in classes.items() if name in DEEPSPEED_OPTIMIZERS}
    return {
        name: params | flags if name.startswith("adam") else params
        for name, params in found.items()
    }


def _union(kinds: tuple[Any, ...]) -> dict[str, Schema]:
    """The parameters that any class takes from the file, without their differing defaults."""
    found: dict[str, Schema] = {}
    for kind in kinds:
        for name, schema_of in _parameters(kind, *_NOT_FROM_THE_FILE).items():
            without = {key: value for key, value in schema_of.items() if key != "default"}
            found.setdefault(name, without)
    return found


# The engine gives the first three; `max_grad_norm` it refuses for every optimizer:
# runtime/engine.py, get_optimizer_configuration and _configure_basic_optimizer.
_NOT_FROM_THE_FILE: Final = ("params", "model_params", "adamw_mode", "max_grad_norm")


def _parameters(kind: Any, *without: str) -> dict[str, Schema]:
    """The keyword parameters of a class's constructor, typed by annotation or by default value."""
    found: dict[str, Schema] = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if name != "self" and name not in without:
            found[name] = _parameter(parameter)
    return found


def _parameter(parameter: inspect.Parameter) -> Schema:
    has_default = parameter.default is not inspect.Parameter.empty
    stated = parameter.annotation if parameter.annotation in (bool, int, float, str) else None
    kind = stated or (
        type(parameter.default) if has_default and parameter.default is not None else None
    )
    typed: Schema = dict(json_type(kind) or {}) if kind else {}
    if typed and has_default and parameter.default is None:
        typed = {"type": [typed["type"], "null"]}
    return {**typed, "default": plain(parameter.default)} if has_default else typed
