"""A setting in a block of accelerate's file that the plugin of each process refuses."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import quoted, shown
from tunec.compiler.lints.accelerate.counted import count, engine
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.fsdp.asked import TRUTHS
from tunec.compiler.lints.parallel.shared import SECTION
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FSDP: Final = (
    *("offload_params", "cpu_ram_efficient_loading", "activation_checkpointing"),
    "activation_checkpointing_offload",
)
_FSDP_1: Final = ("use_orig_params", "sync_module_states", "forward_prefetch")
_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "FSDP": (
        "fsdp_config.fsdp_transformer_layer_cls_to_wrap",
        "fsdp_config.transformer_layer_cls_to_wrap",
    ),
    "DEEPSPEED": ("deepspeed_config.deepspeed_moe_layer_cls_names",),
}
"""Names of classes with a comma between them, by the engine that looks for them."""
_WORDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "cp_comm_strategy": ("cp_size", ("allgather", "alltoall")),
    "sp_attn_implementation": ("sp_size", ("flash_attention_2", "flash_attention_3", "sdpa")),
}
"""Setting -> the width that has to be above 1 for it to be read, and the words it takes."""


def _check(run: Run) -> Iterator[Finding]:
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
    """The keys that are asked for a truth value when the engine's plugin is built."""
    if started == "DEEPSPEED":
        return ("deepspeed_config.zero3_init_flag",)
    if started != "FSDP":
        return ()
    version = document.value("fsdp_config.fsdp_version", 1)
    names = _FSDP if str(version) == "2" else (*_FSDP, *_FSDP_1)
    return tuple(f"fsdp_config.{prefix}{name}" for name in names for prefix in ("fsdp_", ""))


def _wraps_classes(document: Document) -> bool:
    """False where FSDP is to wrap otherwise than by class, and looks up no name."""
    keys = ("fsdp_config.fsdp_auto_wrap_policy", "fsdp_config.auto_wrap_policy")
    said = next((at for key in keys if (at := document.get(key)) is not None), None)
    return said is None or str(said.value).upper() in ("TRANSFORMER_BASED_WRAP", "1")


def _no_truth(at: Place) -> Finding:
    return Finding(
        f"`{at.path}` cannot be {shown(at.value)}",
        (at.label("no truth value"),),
        ("accelerate: invalid truth value",),
        "write true or false",
    )


def _no_text(at: Place) -> Finding:
    names = [each for each in at.value if isinstance(each, str)]
    text = ",".join(names)
    is_plain = bool(text) and len(names) == len(at.value)
    return Finding(
        f"{at.path} is a list: no class is named {shown(str(at.value))}",
        (at.label("handed on as one text"),),
        ("the launcher makes one text of the list, brackets and all, and the plugin splits it",),
        f"write {text}" if is_plain else "write the names with a comma between them",
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


RULE = Rule(
    name="plugin-setting-refused",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/launch.py `prepare_multi_gpu_env`, "
            "`prepare_deepspeed_cmd_env`: str(args...) of each; utils/dataclasses.py "
            "`FullyShardedDataParallelPlugin.__post_init__`: str_to_bool, split(','); "
            "`DeepSpeedPlugin.__post_init__`; 1.10.1 to 1.15.0 `TorchContextParallelConfig`, "
            "1.12.0 to 1.15.0 `DeepSpeedSequenceParallelConfig`: ValueError, Invalid ..."
        ),
    ),
    check=_check,
)
