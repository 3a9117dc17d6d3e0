"""Rules about keys of accelerate's file that it does not know or does not read there."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Fix, Severity
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted, shown
from tunec.compiler.lints.checks.keys.names import is_near
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.effective import default_of
from tunec.compiler.lints.facts.known_keys import (
    DEEPSPEED_RELEASES,
    around,
    deepspeed_paths,
    keys_at,
    keys_ever,
    keys_ever_in,
)
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.facts.sharding import SECTION, TRUTHS, count, engine
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rows import Row, found
from tunec.compiler.lints.rule import Finding, keys, rule

_BLOCKS: Final = ("deepspeed_config", "fsdp_config", "megatron_lm_config", "parallelism_config")
_OLD: Final = frozenset({"fp16", "dynamo_backend"})
_OF_LAUNCHER: Final = frozenset(
    {
        *("main_process_ip", "main_process_port", "machine_rank", "num_machines", "num_processes"),
        *("mixed_precision", "gpu_ids", "rdzv_backend", "same_network", "main_training_function"),
        *("downcast_bf16", "enable_cpu_affinity", "debug"),
    }
)
"""Keys of the top level that are read in a block, too: accelerate 0.30.1 to 1.15.0
commands/launch.py `_validate_launch_command` copies each key of a block to the argument of its
name, and each of fsdp_config to that of `fsdp_` and its name."""
_PATH: Final = "accelerate/{}.json"


@rule("error", "silent", consumers=("accelerate",), reads=("accelerate:*",))
def key_of_none(run: LintContext) -> Iterator[Finding]:
    """accelerate does not know a key in its file, or does not read it at that place."""
    for document in run.of("accelerate"):
        here = around(run, "accelerate")
        if document.is_view or not here or _is_elsewhere(document):
            continue
        known = frozenset[str]().union(*(keys_at("accelerate", each) for each in here))
        free = known.difference(document.found)
        for path, place in document.found.items():
            holder, _, name = path.rpartition(".")
            if not holder and name not in keys_ever("accelerate") | _OLD:
                if not is_near(name, free):
                    yield _refused(place, name)
            elif holder in _BLOCKS and name not in _keys_of(run, holder, here) | _others(holder):
                yield _ignored(run, document, place)


def _others(block: str) -> frozenset[str]:
    """The launcher's own keys, where a block may have them."""
    return frozenset() if block == "fsdp_config" else _OF_LAUNCHER


def _is_elsewhere(document: Document) -> bool:
    return document.value("compute_environment") not in (None, "LOCAL_MACHINE")


def _keys_of(run: LintContext, block: str, here: tuple[str, ...]) -> frozenset[str]:
    """The block's keys in the named release; in any release if none is named."""
    if not run.release("accelerate").is_named:
        return keys_ever_in(block)
    return frozenset[str]().union(*(_keys_in(block, each) for each in here))


def _keys_in(block: str, release: str) -> frozenset[str]:
    found = schema(_PATH.format(release))["properties"].get(block, {})
    return frozenset(found.get("properties", {}))


def _home(name: str) -> str | None:
    """The block that has the key."""
    return next((block for block in _BLOCKS if name in keys_ever_in(block)), None)


def _refused(place: Place, name: str) -> Finding:
    home = _home(name)
    return Finding(
        f"accelerate has no key `{name}` at the top level",
        (place.key_label("refused"),),
        (),
        f"write it below {home}" if home else "remove it",
        consequence="parse",
    )


_AS_EVER: Final[Mapping[str, Callable[[Any], bool]]] = {
    "fsdp": lambda value: value == "full_shard",
    **dict.fromkeys(("limit_all_gathers", "fsdp_limit_all_gathers"), lambda value: value is True),
    "steps_per_print": lambda _value: True,
    "activation_checkpointing": lambda _value: True,
}
"""Keys whose loss changes nothing at these values: accelerate 0.30.1 to 1.15.0 commands/launch.py
`--fsdp_sharding_strategy` and utils/dataclasses.py `FullyShardedDataParallelPlugin`,
`DeepSpeedPlugin.__post_init__`, which puts an infinity in place of steps_per_print. DeepSpeed's own
checkpointing is called by models alone (runtime/activation_checkpointing `checkpoint`), and by none
of transformers."""
_ALIASES: Final = {
    f"stage3_gather_{word}_weights_on_model_save": "zero3_save_16bit_model"
    for word in ("16bit", "fp16")
}
"""DeepSpeed's names of settings for which accelerate has another key in the same block."""
_AMONG_SEVERAL: Final = re.compile(
    r"communication_|reduce_bucket|allgather_|overlap_comm|reduce_scatter"
)
"""Keys about what several processes exchange."""
_PREFETCH: Final = re.compile(r"fsdp_\w*prefetch")
"""accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `FullyShardedDataParallelPlugin`: without
FSDP_BACKWARD_PREFETCH and FSDP_FORWARD_PREFETCH a rank gathers layers only when it needs them."""


def _asks_for_nothing(run: LintContext, document: Document, place: Place, name: str) -> bool:
    """Whether the run is the same without a key that is not read."""
    if name in _AS_EVER:
        return _AS_EVER[name](place.value)
    if place.path.startswith("deepspeed_config.") and _happens(run, document, place, name):
        return True
    if _AMONG_SEVERAL.match(name) and document.value("num_processes") == 1:
        return True
    if name not in ("bf16", "fp16"):
        return place.value in ("auto", document.value(name))
    enabled = place.node.child("enabled")
    precision = document.value("mixed_precision")
    return precision is not None and enabled is not None and enabled.value is (precision == name)


def _happens(run: LintContext, document: Document, place: Place, name: str) -> bool:
    """Whether a value for DeepSpeed is its default, or that of accelerate's key for the same.

    deepspeed 0.14.5 to 0.19.8 runtime/zero/config.py `overlap_comm_valid`: on at stage 3.
    """
    if name in _ALIASES:
        return bool(place.value == document.value(f"deepspeed_config.{_ALIASES[name]}", False))
    stage = document.value("deepspeed_config.zero_stage", 2)
    if name == "overlap_comm":
        return place.value is (str(stage) == "3")
    usual = (default_of(run, "deepspeed", f"{part}{name}") for part in ("zero_optimization.", ""))
    value = next((each.value for each in usual if each.known), None)
    return value is not None and bool(_as_number(place.value) == value)


def _as_number(value: Any) -> Any:
    """What `5e8` means, which YAML leaves a text."""
    with suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value


def _ignored(run: LintContext, document: Document, place: Place) -> Finding:
    holder, _, name = place.path.rpartition(".")
    near, home = nearest(name, keys_ever_in(holder)), _home(name)
    is_same = _asks_for_nothing(run, document, place, name)
    lesser: Severity = "note" if is_same else "warning"
    is_lost = bool(home or near or _is_deepspeeds(name, holder)) and lesser != "note"
    return Finding(
        f"accelerate knows no key `{name}` in {holder}",
        (place.key_label("not read"),),
        ("it becomes a launcher argument that nothing reads",),
        f"write it below {home}" if home else _instead(name, holder, near),
        severity=None if is_lost else lesser,
        consequence="slow" if _PREFETCH.match(name) and not is_same else None,
    )


def _instead(name: str, holder: str, near: Sequence[str]) -> str:
    """What to write instead of a key; a key of ds_config.json belongs in such a file."""
    other = did_you_mean(near) or "remove it"
    if _is_deepspeeds(name, holder):
        return f"{other}, or write it in a JSON file that deepspeed_config_file names"
    return other


def _is_deepspeeds(name: str, holder: str) -> bool:
    return holder == "deepspeed_config" and name in deepspeed_paths(DEEPSPEED_RELEASES[-1])


class _Key(Struct, frozen=True):
    name: str
    is_asked: Callable[[Any], bool]
    is_read: Callable[[Document], bool]
    """Whether the run would use the key if it were read from the file."""


def _is_yes(value: Any) -> bool:
    return value is True or str(value).lower() in ("yes", "true")


def _nodes(document: Document) -> bool:
    machines = count(document, "num_machines")
    return machines is not None and machines[0] > 1


_PROCESSOR: Final = Row(
    "accelerate:use_cpu=true",
    "use_cpu is not read beside {1.value}: the processes take devices",
    label="not read",
    why="ACCELERATE_USE_CPU is set only for NO and MULTI_CPU",
    help="write MULTI_CPU, or give --cpu to accelerate launch",
    beside=("distributed_type=MULTI_GPU|DEEPSPEED|FSDP|MEGATRON_LM",),
    files_only=True,
    severity="note",  # devices are taken, as everything else in the file asks
)
_KEYS: Final = (
    _Key(
        "rdzv_backend", lambda value: isinstance(value, str) and value not in ("static", ""), _nodes
    ),
    _Key("enable_cpu_affinity", _is_yes, lambda _: True),
    _Key(
        "downcast_bf16",
        _is_yes,
        lambda document: document.value("distributed_type") in ("TPU", "XLA"),
    ),
)


@rule(
    "warning",
    "silent",
    consumers=("accelerate",),
    reads=keys("accelerate", "use_cpu", *(key.name for key in _KEYS)),
)
def key_of_flags_only(run: LintContext) -> Iterator[Finding]:
    """The launcher reads a key of accelerate's file only as a flag."""
    started = [name for each in launches(run, "accelerate") for name in each.found]
    for document in run.of("accelerate"):
        for key in _KEYS:
            at = document.get(key.name)
            if document.is_view or at is None or f"flags.{key.name}" in started:
                continue
            if key.is_asked(at.value) and key.is_read(document):
                yield _flag_only(at, key)
    yield from found((_PROCESSOR,), run)


def _flag_only(at: Place, key: _Key) -> Finding:
    return Finding(
        f"{at.path} {at.value} in the file is not read",
        (at.label("not read"),),
        ("the file counts only for flags that are None, and this one has a default",),
        f"give --{key.name}{'' if _is_yes(at.value) else f' {at.value}'} to accelerate launch",
    )


_TRUTHS_OF_FSDP_2: Final = tuple(
    f"fsdp_config.{prefix}{name}"
    for name in (
        *("offload_params", "cpu_ram_efficient_loading", "activation_checkpointing"),
        "activation_checkpointing_offload",
    )
    for prefix in ("fsdp_", "")
)
_TRUTHS_OF_FSDP_1: Final = _TRUTHS_OF_FSDP_2 + tuple(
    f"fsdp_config.{prefix}{name}"
    for name in ("use_orig_params", "sync_module_states", "forward_prefetch")
    for prefix in ("fsdp_", "")
)
_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "FSDP": (
        "fsdp_config.fsdp_transformer_layer_cls_to_wrap",
        "fsdp_config.transformer_layer_cls_to_wrap",
    ),
    "DEEPSPEED": ("deepspeed_config.deepspeed_moe_layer_cls_names",),
}
"""Keys for comma-separated class names, by the engine that looks the classes up."""
_WORDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "cp_comm_strategy": ("cp_size", ("allgather", "alltoall")),
    "sp_attn_implementation": ("sp_size", ("flash_attention_2", "flash_attention_3", "sdpa")),
}
"""Setting -> the width that must exceed 1 for the setting to be read, and its accepted words."""


@rule(
    "error",
    "init",
    consumers=("accelerate",),
    reads=keys(
        "accelerate",
        "deepspeed_config.zero3_init_flag",
        *_TRUTHS_OF_FSDP_1,
        *(key for names in _CLASSES.values() for key in names),
        *(SECTION + name for name in _WORDS),
    ),
)
def plugin_setting_refused(run: LintContext) -> Iterator[Finding]:
    """The plugin of each process refuses a setting in a block of accelerate's file."""
    for document in run.of("accelerate"):
        started = engine(document)
        if document.is_view or started is None:
            continue
        for key in _truths(document, started.value):
            at = document.get(key)
            if at is not None and at.value is not None and str(at.value).lower() not in TRUTHS:
                yield _no_truth(at)
        for key in _CLASSES.get(started.value, ()):
            at = document.get(key)
            if at is not None and isinstance(at.value, list) and _wraps_classes(document):
                yield _no_text(at)
        yield from _words(document)


def _truths(document: Document, started: str) -> tuple[str, ...]:
    """The keys that must be booleans when the engine's plugin is built."""
    if started == "DEEPSPEED":
        return ("deepspeed_config.zero3_init_flag",)
    if started != "FSDP":
        return ()
    version = document.value("fsdp_config.fsdp_version", 1)
    return _TRUTHS_OF_FSDP_2 if str(version) == "2" else _TRUTHS_OF_FSDP_1


def _wraps_classes(document: Document) -> bool:
    """Whether FSDP wraps by class; with another policy it looks up no name."""
    keys = ("fsdp_config.fsdp_auto_wrap_policy", "fsdp_config.auto_wrap_policy")
    said = next((at for key in keys if (at := document.get(key)) is not None), None)
    return said is None or str(said.value).upper() in ("TRANSFORMER_BASED_WRAP", "1")


def _no_truth(at: Place) -> Finding:
    return Finding(
        f"`{at.path}` cannot be {shown(at.value)}",
        (at.label("not a boolean"),),
        ("accelerate: invalid truth value",),
        "write true or false",
    )


def _no_text(at: Place) -> Finding:
    names = [each for each in at.value if isinstance(each, str)]
    text = ",".join(names)
    is_plain = bool(text) and len(names) == len(at.value)
    return Finding(
        f"{at.path} is a list: no class is named {shown(str(at.value))}",
        (at.label("passed on as one string"),),
        ("the launcher turns the list into one string, brackets included; the plugin splits it",),
        f"write {text}" if is_plain else "write the names separated by commas",
        Fix((at.replaced(text),), "safe") if is_plain else None,
    )


def _words(document: Document) -> Iterator[Finding]:
    for name, (width, words) in _WORDS.items():
        at, wide = document.get(SECTION + name), count(document, SECTION + width)
        if at is None or wide is None or wide[0] < 2 or not isinstance(at.value, str):
            continue
        if at.value not in words and "/" not in at.value:
            yield Finding(
                f"`{at.path}` cannot be {shown(at.value)}",
                (at.label("refused"), wide[1].label("", primary=False)),
                (f"taken: {quoted(words)}",),
                "write one of these",
            )


_BACKENDS: Final = ("dynamo_config.dynamo_backend", "dynamo_config.backend", "dynamo_backend")
_SETTINGS: Final = tuple(
    f"dynamo_config.{prefix}{name}"
    for name in ("mode", "use_fullgraph", "use_dynamic", "use_regional_compilation")
    for prefix in ("dynamo_", "")
)
_OFF: Final = (None, False, "default")


@rule("warning", "silent", consumers=("accelerate",), reads=keys("accelerate", *_SETTINGS))
def compile_mode_without_backend(run: LintContext) -> Iterator[Finding]:
    """accelerate's file has settings of torch.compile, but no backend."""
    if any(each.get("flags.dynamo_backend") is not None for each in launches(run, "accelerate")):
        return
    for document in run.of("accelerate"):
        backends = [at for key in _BACKENDS if (at := document.get(key)) is not None]
        if document.is_view or any(str(at.value).lower() != "no" for at in backends):
            continue
        said = [at for key in _SETTINGS if (at := document.get(key)) and at.value not in _OFF]
        if said:
            yield Finding(
                f"{said[0].path} compiles nothing: no backend is named",
                (
                    *(at.label("not used", primary=at is said[0]) for at in said),
                    *(at.label("", primary=False) for at in backends[:1]),
                ),
                ("the backend defaults to no",),
                "write dynamo_backend: INDUCTOR, or remove the block",
            )
