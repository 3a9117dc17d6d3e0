"""Keys and files of another tool."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.facts.known_keys import (
    TOOLS,
    consequence_of_unknown,
    keys_ever,
    may_be_dropped,
)
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule

_CONCEPTS: Final[tuple[Mapping[str, str], ...]] = (
    {
        "hf": "per_device_train_batch_size",
        "axolotl": "micro_batch_size",
        "deepspeed": "train_micro_batch_size_per_gpu",
    },
    {"hf": "per_device_eval_batch_size", "axolotl": "eval_batch_size"},
    {"hf": "num_train_epochs", "axolotl": "num_epochs"},
    {"hf": "optim", "axolotl": "optimizer"},
    {"hf": "lr_scheduler_type", "axolotl": "lr_scheduler"},
    {"hf": "model_name_or_path", "axolotl": "base_model"},
    {"sft": "max_length", "axolotl": "sequence_len", "llamafactory": "cutoff_len"},
    {"trl": "max_seq_length", "axolotl": "sequence_len", "llamafactory": "cutoff_len"},
    {"sft": "packing", "axolotl": "sample_packing", "llamafactory": "packing"},
    {"peft": "lora_r", "axolotl": "lora_r", "llamafactory": "lora_rank"},
    {
        "peft": "lora_target_modules",
        "axolotl": "lora_target_modules",
        "llamafactory": "lora_target",
    },
    {"peft": "use_rslora", "axolotl": "peft_use_rslora", "llamafactory": "use_rslora"},
    {"peft": "lora_use_rslora", "axolotl": "peft_use_rslora", "llamafactory": "use_rslora"},
    {"peft": "use_dora", "axolotl": "peft_use_dora", "llamafactory": "use_dora"},
    {"peft": "lora_use_dora", "axolotl": "peft_use_dora", "llamafactory": "use_dora"},
    {"peft": "target_modules", "axolotl": "lora_target_modules", "llamafactory": "lora_target"},
    {
        "peft": "modules_to_save",
        "axolotl": "lora_modules_to_save",
        "llamafactory": "additional_target",
    },
    {"hf": "gradient_checkpointing", "axolotl": "gradient_checkpointing"},
    {"axolotl": "val_set_size", "llamafactory": "val_size"},
    {"axolotl": "adapter", "llamafactory": "finetuning_type"},
    {"hf": "max_grad_norm", "axolotl": "max_grad_norm", "deepspeed": "gradient_clipping"},
    {"hf": "report_to", "axolotl": "use_wandb"},
)
"""One row per setting: its key by tool. `hf` is TrainingArguments, which LLaMA-Factory and TRL
share."""
_WORDS: Final = {
    "hf": "TrainingArguments",
    "axolotl": "Axolotl",
    "llamafactory": "LLaMA-Factory",
    "deepspeed": "DeepSpeed",
    "sft": "TRL",
    "trl": "TRL",
    "peft": "PEFT",
}
_ONLY_DEEPSPEED: Final = frozenset(
    {
        *("zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"),
        *("zero_force_ds_cpu_optimizer", "offload_optimizer", "offload_param", "zero_stage"),
        *("stage3_gather_16bit_weights_on_model_save", "offload_optimizer_device"),
        *("offload_param_device", "zero3_init_flag", "zero3_save_16bit_model"),
    }
)
_ONLY_ACCELERATE: Final = frozenset({"distributed_type", "deepspeed_config", "machine_rank"})
_IN_FILES: Final = frozenset(
    {"num_processes", "num_machines", "main_process_port", "main_process_ip", "rdzv_backend"}
    | {"compute_environment", "downcast_bf16", "same_network", "main_training_function"}
)
"""Keys of accelerate too; as flags they may be the script's own (`--num_processes` of its data)."""
OF_ENGINES: Final = _ONLY_DEEPSPEED | _ONLY_ACCELERATE | _IN_FILES
"""Keys that are reported here in a trainer's file."""


@rule(
    "error",
    "silent",
    consumers=("axolotl", "llamafactory", "transformers"),
    reads=("axolotl:*", "llamafactory:*", *keys("trainer", *sorted(OF_ENGINES))),
    unless="declared",
)
def key_of_another_tool(run: LintContext) -> Iterator[Finding]:
    """A key that belongs to another tool's dialect."""
    for document in run.of("axolotl", "llamafactory"):
        for path, place in document.found.items():
            if "." not in path and path not in keys_ever(document.kind):
                yield from foreign(run, document, path, place)
    for document in run.of("hf", *TRL):
        if not document.is_view:
            yield from _engine(run, document)


def foreign(run: LintContext, document: Document, path: str, place: Place) -> Iterator[Finding]:
    """Report a key for which this tool has a key with another name."""
    kind = document.kind
    for row in _CONCEPTS:
        owners = [tool for tool, key in row.items() if key == path and tool != kind]
        mine = row.get(kind) or (row.get("hf") if kind == "llamafactory" else None)
        if owners and mine is not None and mine != path:
            free = mine not in document.found
            yield _finding(run, place, owners[0], (mine if free else None, mine))
            return
    if path in _ONLY_DEEPSPEED:
        yield _finding(run, place, "deepspeed", (None, None))
    if kind == "llamafactory" and path in _IN_FILES and document.format != "shell":
        yield _finding(run, place, "accelerate", (None, None))


def _engine(run: LintContext, document: Document) -> Iterator[Finding]:
    files = () if document.format == "shell" else _IN_FILES
    for path in (*_ONLY_DEEPSPEED, *_ONLY_ACCELERATE, *files):
        place = document.get(path)
        if place is not None:
            owner = "deepspeed" if path in _ONLY_DEEPSPEED else "accelerate"
            yield _finding(run, place, owner, (None, None))


def _finding(
    run: LintContext, place: Place, owner: str, names: tuple[str | None, str | None]
) -> Finding:
    rename, mine = names
    kind = place.document.kind if place.document.kind in TOOLS else "hf"
    is_said = mine is not None and mine in place.document.found
    consequence = consequence_of_unknown(run, place.document)
    silent = consequence == "silent"
    word = _WORDS.get(owner, owner)
    return Finding(
        f"`{place.path}` is a key of {word}, and {_WORDS.get(kind, kind)} has none such",
        (place.key_label("ignored" if silent else "refused"),),
        (
            "a key that its reader does not know is silently dropped"
            if silent
            else "ValueError: some keys are not used by the HfArgumentParser",
        ),
        _help(owner, mine),
        Fix((place.renamed(rename),), "unsafe") if rename is not None else None,
        consequence=consequence,
        severity="warning" if silent and (is_said or may_be_dropped(run, place.document)) else None,
    )


def _help(owner: str, mine: str | None) -> str:
    if mine is not None:
        return f"write `{mine}`"
    if owner == "accelerate":
        return "move it to the file of accelerate launch --config_file"
    return "move it to the file that the key deepspeed names"


_KEYS: Final[tuple[tuple[str, str, Consequence], ...]] = (
    ("trainer", "deepspeed", "parse"),
    ("trainer", "fsdp_config", "parse"),
    ("trainer", "accelerator_config", "parse"),
    ("accelerate", "deepspeed_config.deepspeed_config_file", "init"),
    ("launch", "flags.deepspeed_config_file", "init"),
)
"""Kind of document, key that names a file, and when the file is read."""
_ENDINGS: Final = (".yaml", ".yml")


@rule(
    "error",
    "parse",
    consumers=("transformers", "accelerate"),
    reads=tuple(f"{kind}:{key}" for kind, key, _ in _KEYS),
)
def file_of_another_format(run: LintContext) -> Iterator[Finding]:
    """A YAML file where the reader expects JSON."""
    for kind, key, consequence in _KEYS:
        for document in run.of(kind):
            at = document.get(key)
            if document.is_view or at is None or not _names_yaml(at):
                continue
            text = _text(run, str(at.value))
            if text is None or not _is_json(text):
                yield Finding(
                    f"{at.path} {at.value} is read as JSON, and is YAML"
                    + (" by its name" if text is None else ""),
                    (at.label("read as JSON"),),
                    ("json.load of the file: JSONDecodeError",),
                    "write the file as JSON",
                    consequence=consequence,
                    severity="warning" if text is None else None,
                )


def _names_yaml(at: Place) -> bool:
    return isinstance(at.value, str) and at.value.lower().endswith(_ENDINGS)


def _text(run: LintContext, name: str) -> str | None:
    """The text of the named file, if it was read."""
    files: tuple[Document, ...] = tuple(each for each in run.documents if not each.is_view)
    read = [(each.name, each.text) for each in files]
    read += [(each.name, each.text) for each in run.unread]
    wanted = name.rpartition("/")[2]
    return next((text for held, text in read if held.rpartition("/")[2] == wanted), None)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
