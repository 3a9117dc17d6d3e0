"""LLaMA-Factory's YAML as rows: its own arguments beside those of TrainingArguments."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.target import Entry, File, Json, Target, in_no_plan
from tunec.schemas.frozen import replace
from tunec.targets.huggingface import schedule, training
from tunec.targets.huggingface.packages import TRANSFORMERS
from tunec.targets.huggingface.predictions import PREDICTIONS
from tunec.targets.llamafactory.migration import CARRIES, LEAVES
from tunec.targets.llamafactory.model import (
    ADAPTER,
    CHECKPOINTING,
    EVERY_LAYER,
    MODEL,
    OBJECTIVE,
    PRECISION,
    QUANTIZATION,
    forms,
)
from tunec.targets.llamafactory.packages import (
    PACKAGE,
    RELEASES,
    SUPPORTED,
    TRAINER,
    companions,
)
from tunec.targets.read_only import observed, schema_of

_MARKS: Final = frozenset(
    {
        *("stage", "finetuning_type", "template", "cutoff_len", "dataset_dir", "lora_target"),
        *("infer_backend", "export_dir", "plot_loss", "adapter_name_or_path", "flash_attn"),
        *("disable_gradient_checkpointing", "additional_target", "lora_rank", "neat_packing"),
        *("use_galore", "use_apollo", "use_badam", "badam_mode", "use_llama_pro", "shift_attn"),
        *("train_on_prompt", "mask_history", "freeze_trainable_layers", "freeze_vision_tower"),
        *("pref_loss", "pref_beta", "reward_model_type", "mix_strategy", "tokenized_path"),
        *("image_max_pixels", "video_max_pixels", "enable_liger_kernel", "resize_vocab"),
        *("quantization_method", "create_new_adapter", "loraplus_lr_ratio", "upcast_layernorm"),
    }
)
_ALSO: Final = frozenset({"overwrite_cache", "quantization_bit", "do_train", "val_size"})
"""Keys that examples of transformers and of ChatGLM have too."""


def _is_llamafactory(document: Json) -> bool:
    """Two keys that TRL's and the Trainer's files do not have together.

    Files with `model` are for another parser, which the variable USE_V1 turns on (llamafactory
    0.9.5 cli.py).
    """
    if not isinstance(document, dict) or "model" in document:
        return False
    own = len(_MARKS & set(document))
    return own > 0 and own + len(_ALSO & set(document)) > 1


def _of_the_trainer() -> Iterator[Entry]:
    """The rows of TrainingArguments that say a slot, counted by transformers' releases."""
    rows = (
        *training.BATCH,
        training.LEARNING_RATE,
        *training.OPTIMIZER,
        *schedule.LENGTH,
        *schedule.WARMUP,
        schedule.LOG_STEPS,
        *schedule.SAVING,
        *schedule.EVALUATION,
        *training.RUNTIME,
        *PREDICTIONS,
    )
    for row in rows:
        if row.slots:
            yield replace(row, package=row.package or TRAINER)


_ENGINE: Final = observed(
    ("deepspeed",),
    ("parallel.engine",),
    lambda found: {"parallel.engine": "deepspeed"} if found["deepspeed"] else {},
    "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments`",
    package=TRAINER,
)

CONFIG: Final = File(
    name="llamafactory.yaml",
    format="yaml",
    entries=(
        *MODEL,
        *OBJECTIVE,
        *ADAPTER,
        *QUANTIZATION,
        *PRECISION,
        *CHECKPOINTING,
        _ENGINE,
        *_of_the_trainer(),
    ),
    recognise=_is_llamafactory,
    schema=schema_of("llamafactory", RELEASES, PACKAGE),
    when=in_no_plan,
    phrases=(EVERY_LAYER,),
    foreign=forms,
    carries=CARRIES,
    leaves=LEAVES,
)

TARGET: Final = Target(
    name="llamafactory",
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=(CONFIG,),
    cannot={},
    run_by="trl",
    beside={TRAINER: TRANSFORMERS},
    companions=companions,
)
"""What `llamafactory-cli train` reads."""
