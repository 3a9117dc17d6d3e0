"""Other forms of SimpleTuner's flags: a command line, an older config.env, the web page's JSON.

All are read as the keys of config.json, so that the same rows apply. They are only read:
config.json can express everything that they can, and also `false`, which a config.env cannot.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.target import Entry, Json
from tunec.schemas.frozen import replace
from tunec.targets.simpletuner.rows import environment
from tunec.targets.words import typed

VARIABLES: Final[Mapping[str, str]] = {
    "BASE_MODEL_PRECISION": "base_model_precision",
    "CHECKPOINTING_LIMIT": "checkpoints_total_limit",
    "CHECKPOINTING_STEPS": "checkpoint_step_interval",
    "CHECKPOINT_EPOCH_INTERVAL": "checkpoint_epoch_interval",
    "CHECKPOINT_STEP_INTERVAL": "checkpoint_step_interval",
    "DATALOADER_CONFIG": "data_backend_config",
    "GRADIENT_ACCUMULATION_STEPS": "gradient_accumulation_steps",
    "LEARNING_RATE": "learning_rate",
    "LORA_TYPE": "lora_type",
    "LR_END": "lr_end",
    "LR_SCHEDULE": "lr_scheduler",
    "LR_WARMUP_STEPS": "lr_warmup_steps",
    "MAX_NUM_STEPS": "max_train_steps",
    "MIXED_PRECISION": "mixed_precision",
    "MODEL_FAMILY": "model_family",
    "MODEL_NAME": "pretrained_model_name_or_path",
    "MODEL_TYPE": "model_type",
    "NUM_EPOCHS": "num_train_epochs",
    "OPTIMIZER": "optimizer",
    "OUTPUT_DIR": "output_dir",
    "RESOLUTION": "resolution",
    "RESOLUTION_TYPE": "resolution_type",
    "TRAINING_NUM_MACHINES": "num_machines",
    "TRAINING_NUM_PROCESSES": "num_processes",
    "TRAINING_SEED": "seed",
    "TRAIN_BATCH_SIZE": "train_batch_size",
    "USE_DORA": "use_dora",
    "USE_GRADIENT_CHECKPOINTING": "gradient_checkpointing",
}
"""The flag of each variable, for flags that a row has (`env_to_args_map` in
helpers/configuration/env_file.py, 3.1.6 and 4.10.1)."""

_MORE: Final = "TRAINER_EXTRA_ARGS"
"""The variable that holds further flags, split at blanks."""


def spelled_either_way(entry: Entry) -> Entry:
    """A row that also reads its keys with the dashes of flags and its numbers as texts.

    The web page writes `--model_type`; `mapping_to_cli_args` (helpers/configuration/cli_utils.py)
    accepts both, turns every value into a text, and drops `false`, so that the default stays.
    """

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        kept = {
            name.removeprefix("--"): typed(value) if isinstance(value, str) else value
            for name, value in found.items()
            if not (isinstance(value, str) and value.strip().lower() == "false")
        }
        return entry.read(kept) if kept else {}

    dashed = tuple(f"--{key}" for key in entry.keys)
    return replace(entry, keys=(*entry.keys, *dashed), read=read)


def parse_variables(text: str) -> Mapping[str, Json]:
    """The flags of a config.env: `load_env_config` drops every `false`."""
    said = environment.parse(text)
    flags = {
        flag: typed(said[name])
        for name, flag in VARIABLES.items()
        if name in said and said[name] and said[name].lower() != "false"
    }
    return flags | dict(_flags(said.get(_MORE, "").split()))


def parse_flags(text: str) -> Mapping[str, Json]:
    """The flags of a command line, whatever precedes them.

    Raises ValueError for a quote that is not closed.
    """
    return dict(_flags(shlex.split(text.replace("\\\n", " "), comments=True)))


def _flags(words: Sequence[str]) -> Iterator[tuple[str, Json]]:
    """`--name=value`, `--name value` or, for true, `--name`, paired as by argparse."""
    for at, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, given, value = word[2:].partition("=")
        following = words[at + 1] if at + 1 < len(words) else "--"
        if given:
            yield name, typed(value)
        else:
            yield name, True if following.startswith("--") else typed(following)
