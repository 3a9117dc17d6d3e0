"""Keys that came, went or were renamed."""

from collections.abc import Iterator
from typing import Final

from packaging.version import Version

from tunec.compiler.consumers.schemas import known_releases
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.effective import releases_around
from tunec.compiler.lints.facts.known_keys import fields_of, is_whole, known_in_other_releases
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.compiler.lints.schemas import faults

_RENAMED: Final = {
    "evaluation_strategy": "eval_strategy",
    "no_cuda": "use_cpu",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "push_to_hub_token": "hub_token",
    "include_tokens_per_second": "include_num_input_tokens_seen",
}
_HELP: Final = {
    "warmup_ratio": "write warmup_steps: a number below 1 is a share of all steps from 5.0 on",
    "group_by_length": "write train_sampling_strategy: group_by_length",
    "adafactor": "write optim: adafactor",
    "overwrite_output_dir": "remove it: the directory is written to as it is",
    "save_safetensors": "remove it: safetensors are always written",
    "torchdynamo": "write torch_compile_backend",
    "logging_dir": "set TENSORBOARD_LOGGING_DIR instead",
    "fsdp_min_num_params": "write fsdp_config.min_num_params",
    "fsdp_transformer_layer_cls_to_wrap": "write fsdp_config.transformer_layer_cls_to_wrap",
}
_GONE: Final = {
    "sharded_ddp": "write fsdp, or deepspeed",
    "evaluate_during_training": "write eval_strategy: steps",
}
"""Fields that no release from 4.40 on has: huggingface/transformers#25702, #9206."""
_SINCE_0_10: Final = tuple(
    f"zero_optimization.{key}"
    for key in ("zero_hpz_partition_size", *("zero_quantized_weights", "zero_quantized_gradients"))
)
"""deepspeedai/DeepSpeed#3827, OpenRLHF/OpenRLHF#63: extra fields not permitted in 0.9.5."""
_REFUSED: Final = (
    *("nebula", "compression_training", "amp", "quantize_training", "sparse_gradients"),
    *("eigenvalue", "sparse_attention", "elasticity", "graph_harvesting", "curriculum_learning"),
    *("progressive_layer_drop", "zero_optimization.mics_shard_size"),
    *("zero_optimization.mics_hierarchical_params_gather", "zero_optimization.zeropp_loco_param"),
)
"""deepspeed 0.19.8 runtime/config.py `_REMOVED_TOP_LEVEL_CONFIG_KEYS`, `_REMOVED_ZERO_CONFIG_KEYS`:
refused by name, while other keys at the top that are not known are ignored."""
_OWN: Final = ("overwrite_output_dir",)
"""Fields that went from TrainingArguments, and that LLaMA-Factory 0.9.4 and later has itself:
hparams/training_args.py."""


@rule(
    "key-of-another-release",
    "error",
    "parse",
    consumers=("transformers", "deepspeed"),
    sources=(
        "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments`: fields by release",
        "deepspeed 0.14.5 to 0.19.8: keys by release",
    ),
    reads=("trainer:*", "deepspeed:*"),
)
def key_of_another_release(run: LintContext) -> Iterator[Finding]:
    """A key that the release which runs does not have, though another has."""
    beside = ("llamafactory",) if run.release("transformers").is_named else ()
    for document in run.of("hf", *TRL, *beside):
        kept = _OWN if document.kind in beside else ()
        for path, place in document.found.items():
            if "." not in path and not document.is_partial and path not in kept:
                yield from _field(run, document, path, place)
        yield from _gone_later(run, document)
    for document in run.of("deepspeed"):
        if not is_whole(document):
            continue
        yield from _refused_later(run, document)
        yield from _not_yet(run, document)
        for fault in faults(run, document):
            known = known_in_other_releases(run, "deepspeed", fault.path)
            if fault.what == "unknown" and known:
                refused = fault.is_refused or (
                    fault.path in _REFUSED and str(run.release("deepspeed").version) >= "0.19"
                )
                yield _finding(
                    run,
                    "deepspeed",
                    fault.path,
                    fault.place,
                    known,
                    "init" if refused else "silent",
                )


def _not_yet(run: LintContext, document: Document) -> Iterator[Finding]:
    """Keys that came after a release which somebody names, older than those that were read."""
    if run.runs("deepspeed<0.10") is True:
        for key in _SINCE_0_10:
            place = document.get(key)
            if place is not None:
                yield Finding(
                    f"{run.release('deepspeed')} has no key `{key}`",
                    (place.key_label("refused"),),
                    ("it came with 0.10.0",),
                    "use deepspeed 0.10 or newer, or remove it",
                    consequence="init",
                )


def _refused_later(run: LintContext, document: Document) -> Iterator[Finding]:
    """Keys that the release which is taken to run has, and that newer ones refuse by name."""
    release = run.release("deepspeed")
    if release.is_named or str(release.version) >= "0.19":
        return
    for key in _REFUSED:
        place = document.get(key)
        if place is not None and not (key == "amp" and place.value in (False, None)):
            yield Finding(
                f"deepspeed 0.19 refuses `{key}`",
                (place.key_label("refused from 0.19 on"),),
                (
                    f"nobody names the version of deepspeed; {release} still reads it",
                    "its block is refused also where it turns nothing on",
                ),
                "remove it",
                severity="warning",
                consequence="init",
            )


def _gone_later(run: LintContext, document: Document) -> Iterator[Finding]:
    """Fields of the release that is taken to run, which the newest one has not: told together."""
    release = run.release("transformers")
    if release.is_named or document.is_partial or document.is_compiled:
        return
    stem, newest = "training_arguments", max(known_releases("training_arguments"), key=Version)
    around = releases_around(stem, str(release.version))
    here = frozenset(name for each in around for name in fields_of(stem, each))
    gone = [
        place
        for path, place in document.found.items()
        if "." not in path and path in here and path not in fields_of(stem, newest)
    ]
    if gone:
        names = ", ".join(place.path for place in gone)
        yield Finding(
            f"transformers {newest} has no key {names}",
            tuple(place.key_label("gone", primary=place is gone[0]) for place in gone),
            (f"nobody names the version of transformers; {release} still has them",),
            next((_HELP[place.path] for place in gone if place.path in _HELP), "remove it"),
            severity="warning",
        )


def _field(run: LintContext, document: Document, path: str, place: Place) -> Iterator[Finding]:
    del document
    known = known_in_other_releases(run, "hf", path)
    if path in _GONE and run.runs("transformers<4.35") is not True:
        yield Finding(
            f"transformers no longer has a key `{path}`",
            (place.key_label("refused"),),
            ("no release from 4.40 on has it",),
            _GONE[path],
            Fix((place.removed(),), "unsafe"),
        )
    elif known:
        yield _finding(run, "transformers", path, place, known, "parse")


def _finding(
    run: LintContext,
    package: str,
    path: str,
    place: Place,
    known: tuple[str, ...],
    consequence: Consequence,
) -> Finding:
    release = run.release(package)
    came = known[-1].split(".") < str(release.version).split(".")
    new = _RENAMED.get(path)
    return Finding(
        f"{release} has no key `{path}`",
        (place.key_label("not in this release"),),
        (
            f"of the releases that were read, {known[0]} to {known[-1]} have it",
            *(() if release.is_named else (f"nobody names the version of {package}",)),
        ),
        f"write `{new}`" if new else _HELP.get(path, "remove it" if came else "leave it out"),
        Fix((place.renamed(new),), "safe") if new and new != "use_cpu" else None,
        severity=None if release.is_named else "warning",
        consequence=consequence,
    )


_BLOCK: Final = "zero_optimization"
_NEW: Final = {
    "cpu_offload": "offload_optimizer: {device: cpu}",
    "cpu_offload_param": "offload_param: {device: cpu}",
    "cpu_offload_use_pin_memory": "pin_memory, in offload_optimizer or offload_param",
    "stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
}


@rule(
    "deprecated-key",
    "warning",
    "silent",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/zero/config.py `DeepSpeedZeroConfig`: fields with "
        "deprecated and new_param; runtime/config_utils.py `_process_deprecated_field`: a "
        "warning, and the value is the new field's; set_new_param False of "
        "cpu_offload_use_pin_memory"
    ),
    reads=keys("deepspeed", *(f"{_BLOCK}.{old}" for old in _NEW)),
)
def deprecated_key(run: LintContext) -> Iterator[Finding]:
    """A key that DeepSpeed still reads, as another one."""
    for document in run.of("deepspeed"):
        for old, new in _NEW.items():
            place = document.get(f"{_BLOCK}.{old}")
            if place is None or document.is_view:
                continue
            is_renamed = ":" not in new and "," not in new
            is_unread = old == "cpu_offload_use_pin_memory"
            yield Finding(
                f"{old} is deprecated{': it is not read' if is_unread else ''}",
                (place.key_label("not read" if is_unread else "read as another key"),),
                (f"the key is {new} now",),
                f"write {new}",
                Fix((place.renamed(new),), "safe") if is_renamed else None,
            )
