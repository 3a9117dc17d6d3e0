"""Axolotl's YAML as rows: a dialect that is read and never written."""

from typing import Final

from tunec.compiler.target import File, Json, Target
from tunec.targets.axolotl.model import (
    ADAPTER,
    CHECKPOINTING,
    MODEL,
    OBJECTIVE,
    PARALLEL,
    PRECISION,
    QUANTIZATION,
)
from tunec.targets.axolotl.packages import PACKAGE, RELEASES, SUPPORTED
from tunec.targets.axolotl.training import BATCH, OPTIMIZER, RUNTIME, SCHEDULE
from tunec.targets.read_only import never, schema_of

_MARKS: Final = frozenset(
    {
        *("micro_batch_size", "num_epochs", "sequence_len", "sample_packing", "datasets"),
        *("adapter", "lora_target_linear", "val_set_size", "dataset_prepared_path", "plugins"),
        *("pretraining_dataset", "test_datasets", "rl", "flash_attention", "lora_model_dir"),
    }
)


def _is_axolotl(document: Json) -> bool:
    """`base_model` is required, and means the same to no other trainer."""
    return isinstance(document, dict) and "base_model" in document and bool(_MARKS & set(document))


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
        *BATCH,
        *OPTIMIZER,
        *SCHEDULE,
        *RUNTIME,
    ),
    recognise=_is_axolotl,
    schema=schema_of("axolotl", RELEASES, PACKAGE),
    when=never,
)

TARGET: Final = Target(
    name="axolotl",
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=(CONFIG,),
    cannot={},
)
"""What `axolotl train` reads."""
