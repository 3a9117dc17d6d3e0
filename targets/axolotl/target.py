"""Axolotl's YAML as rows: a dialect that is read and never written."""

from typing import Final

from tunec.compiler.target import File, Json, Target, in_no_plan
from tunec.targets.axolotl.fsdp import FSDP
from tunec.targets.axolotl.migration import CARRIES, LEAVES
from tunec.targets.axolotl.model import (
    ADAPTER,
    CHECKPOINTING,
    EVERY_LAYER,
    MODEL,
    OBJECTIVE,
    PARALLEL,
    PRECISION,
    QUANTIZATION,
    forms,
)
from tunec.targets.axolotl.packages import PACKAGE, RELEASES, SUPPORTED
from tunec.targets.axolotl.training import BATCH, OPTIMIZER, RUNTIME, SCHEDULE, TIMES
from tunec.targets.read_only import schema_of

_MARKS: Final = frozenset(
    {
        *("micro_batch_size", "num_epochs", "sequence_len", "sample_packing", "datasets"),
        *("adapter", "lora_target_linear", "val_set_size", "dataset_prepared_path", "plugins"),
        *("pretraining_dataset", "test_datasets", "rl", "flash_attention", "lora_model_dir"),
    }
)


_OWN: Final = frozenset(
    {
        *("sequence_len", "sample_packing", "eval_sample_packing", "pad_to_sequence_len"),
        *("lora_target_linear", "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"),
        *("evals_per_epoch", "saves_per_epoch", "dataset_prepared_path", "unfrozen_parameters"),
        *("sdp_attention", "xformers_attention", "pretraining_dataset", "test_datasets"),
        *("sequence_parallel_degree", "eval_table_size"),
    }
)
"""Keys that no other trainer has."""
_ALSO: Final = frozenset(
    {
        *("adapter", "load_in_8bit", "load_in_4bit", "micro_batch_size", "val_set_size", "rl"),
        *("num_epochs", "fsdp_config", "special_tokens", "deepspeed", "trl", "datasets"),
        *("gradient_accumulation_steps", "lora_r", "lr_scheduler", "chat_template"),
        *("flash_attention", "early_stopping_patience", "train_on_inputs"),
    }
)
"""Keys that others have too."""
_OF_OTHERS: Final = frozenset({"model", "model_name"})
"""How programs of one's own name a model."""


def _is_axolotl(document: Json) -> bool:
    """`base_model` is required, and means the same to no other trainer; a part has two own keys."""
    if not isinstance(document, dict):
        return False
    own = len(_OWN & set(document))
    is_part = own > 1 or (own > 0 and len(_ALSO & set(document)) > 1)
    if "base_model" in document:
        return is_part or bool(_MARKS & set(document))
    return is_part and not _OF_OTHERS & set(document)


CONFIG: Final = File(
    name="axolotl.yaml",
    format="yaml",
    entries=(
        *MODEL,
        *OBJECTIVE,
        *ADAPTER,
        *QUANTIZATION,
        *PRECISION,
        *CHECKPOINTING,
        *PARALLEL,
        *FSDP,
        *BATCH,
        *OPTIMIZER,
        *SCHEDULE,
        *RUNTIME,
    ),
    recognise=_is_axolotl,
    schema=schema_of("axolotl", RELEASES, PACKAGE),
    when=in_no_plan,
    filled=frozenset(),
    phrases=(EVERY_LAYER, TIMES),
    foreign=forms,
    carries=CARRIES,
    leaves=LEAVES,
)

TARGET: Final = Target(
    name="axolotl",
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=(CONFIG,),
    cannot={},
    run_by="trl",
)
"""What `axolotl train` reads."""
