"""`auto` at a key that no trainer fills in."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tunec.compiler.lints.document import TRAINERS, Document
from tunec.compiler.lints.effective import (
    AUTO_OF_DEEPSPEED,
    default_of,
    filled_keys,
    is_launched_by_accelerate,
)
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import faults, paths_of, schemas

_ACCELERATE: Final = frozenset(
    {
        *("gradient_accumulation_steps", "gradient_clipping", "zero_optimization.stage"),
        *(
            f"zero_optimization.offload_{what}.{key}"
            for what in ("optimizer", "param")
            for key in ("device", "nvme_path")
        ),
        "zero_optimization.stage3_gather_16bit_weights_on_model_save",
        *("fp16.enabled", "bf16.enabled", "train_batch_size", "train_micro_batch_size_per_gpu"),
        "steps_per_print",
    }
)
"""accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`,
`set_mixed_precision`; accelerator.py `_prepare_deepspeed`."""
_DEFAULTS: Final[Mapping[str, str]] = {
    "zero_optimization.stage": "2",
    **{
        f"zero_optimization.offload_{what}.{key}": "none"
        for what in ("optimizer", "param")
        for key in ("device", "nvme_path")
    },
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": "false",
}
"""What accelerate puts there where its launcher gave it no flag: there `os.environ.get` of
ACCELERATE_DEEPSPEED_ZERO_STAGE and its like."""
_BLOCKS: Final = (
    *("zero_optimization.", "fp16.", "bf16.", "aio.", "flops_profiler.", "comms_logger."),
    *("tensorboard.", "wandb.", "csv_monitor."),
)
"""Blocks that drop "auto": they are DeepSpeedConfigModel."""
_HANDED_ON: Final = ("optimizer.", "scheduler.")
_OFFLOADS: Final = ("zero_optimization.offload_optimizer", "zero_optimization.offload_param")
_OWN: Final = (*AUTO_OF_DEEPSPEED, "data_types.keep_in_fp32_modules")
"""Where nobody has to fill it in."""


def _check(run: Run) -> Iterator[Finding]:
    if run.deepspeed_reader != "trainer":
        return
    for document in run.of("deepspeed"):
        for path, place in _automatic(document).items():
            if path in _ACCELERATE or path.startswith(_OWN):
                if path in _DEFAULTS and not is_launched_by_accelerate(run):
                    yield _defaulted(path, place)
                continue
            if path not in filled_keys(run) and not _is_unknown(run, document, path):
                found, is_read = _finding(run, path, place), _is_read(run, document, path)
                yield found if is_read else replace(found, consequence="silent")


def _automatic(document: Document) -> Mapping[str, Place]:
    """The keys that say auto; accelerate fills in those of its own block and of its flags."""
    holder = document.origin
    if holder is not None and holder.kind not in TRAINERS:
        return {}
    return document.where(_is_auto)


def _is_auto(_: str, value: Any) -> bool:
    return bool(value == "auto")


def _is_unknown(run: Run, document: Document, path: str) -> bool:
    """Whether it is, or lies under, a key that DeepSpeed does not know: another rule tells that."""
    unknown = (each.path for each in faults(run, document) if each.what == "unknown")
    return any(path == each or path.startswith(f"{each}.") for each in unknown)


def _is_read(run: Run, document: Document, path: str) -> bool:
    """Whether DeepSpeed has such a key; what an optimizer is given is read by its class."""
    return path.startswith(_HANDED_ON) or any(
        path in paths_of(each) for each in schemas(run, document)
    )


def _defaulted(path: str, place: Place) -> Finding:
    name, value = path.rpartition(".")[2], _DEFAULTS[path]
    return Finding(
        f"`{path}`: auto comes to {value}",
        (place.label("auto"),),
        ("no argument of the trainer stands for it: it is the default of accelerate's plugin",),
        f"write what {name} is to be",
        severity="warning",
    )


def _finding(run: Run, path: str, place: Place) -> Finding:
    default = default_of(run, "deepspeed", path)
    drops = path.startswith(_BLOCKS)
    is_truth = "." not in path and isinstance(default.value, bool)
    then = "its default" if default.value is None else f"{default.value}, its default,"
    note = f"the block drops it, and {then} holds" if drops else "it is used as the word that it is"
    if is_truth:
        note = "any word counts as true"
    return Finding(
        f"nobody fills in `{path}`: auto",
        (place.label("auto"),),
        (note, f"{run.release('transformers')} fills in other keys"),
        "write the value, or remove it",
        # accelerate looks into these two for the device
        consequence="parse" if path in _OFFLOADS else "silent" if drops or is_truth else "init",
        severity="warning" if drops and default.value is not None else None,
    )


RULE = Rule(
    name="auto-never-filled",
    severity="error",
    consequence="silent",
    consumers=("transformers", "deepspeed"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `trainer_config_process`, "
            "`trainer_config_finalize`: the keys that are filled in"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: "
            "fill_match of its own fields, zero_stage 2 by default"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config_utils.py `DeepSpeedConfigModel.__init__`: "
            "drops auto; runtime/engine.py `_configure_basic_optimizer`"
        ),
    ),
    check=_check,
)
