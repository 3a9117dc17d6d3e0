"""What a script gives `Accelerator` by a plugin, as accelerate's own file has it."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.python_calls import Call, Calls
from tunec.compiler.lints.python_runs import Found
from tunec.schemas.frozen import replace

_ENGINE: Final = "hf_ds_config"
_IN_CAPITALS: Final = frozenset(
    {"sharding_strategy", "auto_wrap_policy", "backward_prefetch", "state_dict_type"}
)
_OF_FSDP: Final = (
    *("fsdp_version", "sharding_strategy", "reshard_after_forward", "backward_prefetch"),
    *("auto_wrap_policy", "state_dict_type", "use_orig_params", "sync_module_states"),
    *("forward_prefetch", "activation_checkpointing", "cpu_ram_efficient_loading"),
    "min_num_params",
)
_OF_DEEPSPEED: Final = (
    *("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "zero3_init_flag"),
    *("offload_optimizer_device", "offload_param_device", "zero3_save_16bit_model"),
)
_PLUGINS: Final[Mapping[str, tuple[str, str, Mapping[str, str]]]] = {
    "accelerate.FullyShardedDataParallelPlugin": (
        "FSDP",
        "fsdp_config",
        {
            **{key: f"fsdp_{key.removeprefix('fsdp_')}" for key in _OF_FSDP},
            "cpu_offload": "fsdp_offload_params",
            "transformer_cls_names_to_wrap": "fsdp_transformer_layer_cls_to_wrap",
        },
    ),
    "accelerate.DeepSpeedPlugin": (
        "DEEPSPEED",
        "deepspeed_config",
        {**{key: key for key in _OF_DEEPSPEED}, _ENGINE: "deepspeed_config_file"},
    ),
}
"""Arguments of accelerate's plugins, and what its file calls them."""
_OF_LAUNCH: Final = frozenset(
    {"num_processes", "num_machines", "machine_rank", "main_process_ip", "gpu_ids", "use_cpu"}
)


def short_of(origin: str) -> str:
    """An origin without the modules between: `peft.tuners.lora.LoraConfig` is `peft.LoraConfig`."""
    package, _, rest = origin.partition(".")
    return f"{package}.{rest.rpartition('.')[2]}" if rest else origin


def is_accelerator(origin: str) -> bool:
    """Whether something imported is Accelerate's own class that prepares what trains."""
    return short_of(origin) == "accelerate.Accelerator"


def is_plugin(origin: str) -> bool:
    """Whether something imported is what configures Accelerate for an engine."""
    return short_of(origin) in _PLUGINS


def plugged(call: Call, calls: Calls) -> Iterator[Found]:
    """What `Accelerator` is given by a plugin, in the words of accelerate's own file.

    accelerate 1.0.1 to 1.15.0 utils/dataclasses.py: what is left out, variables of the launcher's
    may say.
    """
    for keyword in ("fsdp_plugin", "deepspeed_plugin"):
        plugin = _given(call, keyword, calls)
        if plugin is None:
            continue
        kind, block, names = _PLUGINS[short_of(plugin.origin)]
        mine = {
            names[key]: _in_its_words(key, node)
            for key, node in plugin.fields.items()
            if key in names and not (key == _ENGINE and node.fields is not None)
        }
        fields = {
            "distributed_type": Node(call.span, value=kind),
            block: Node(plugin.span, fields=mine),
            **{key: call.fields[key] for key in ("mixed_precision",) if key in call.fields},
        }
        absent = {f"{block}.{key}" for key in {*names.values()} - mine.keys()}
        unknown = frozenset({*absent, *_OF_LAUNCH, *({"mixed_precision"} - fields.keys())})
        yield Found("accelerate", Node(call.span, fields=fields), unknown, call)
        engine = plugin.fields.get(_ENGINE)
        if engine is not None and engine.fields:
            yield Found("deepspeed", engine, frozenset(), call)


def _given(call: Call, keyword: str, calls: Calls) -> Call | None:
    """The plugin that is given as a keyword, made there or assigned once."""
    value = next((e.value for e in call.site.call.keywords if e.arg == keyword), None)
    name = calls.given(call, keyword)
    if name is not None:
        binding = call.site.scope.found(name)
        values = [each.value for each in binding[0]] if binding is not None else []
        value = values[0] if len(values) == 1 and name not in calls.module.changed else None
    mine = (each for each in calls.found if each.site.call is value and not each.is_open)
    return next((each for each in mine if short_of(each.origin) in _PLUGINS), None)


def _in_its_words(key: str, node: Node) -> Node:
    """A value as accelerate's file has it: words in capitals, classes in one text."""
    if key == "transformer_cls_names_to_wrap" and node.items is not None:
        names = [str(each.value) for each in node.items]
        return replace(node, items=None, value=",".join(names))
    is_word = isinstance(node.value, str) and key in _IN_CAPITALS
    return replace(node, value=str(node.value).upper()) if is_word else node
