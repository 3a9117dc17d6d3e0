"""SimpleTuner's flags as config.json, config.env and command lines spell them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from tunec.compiler.lints.batch.counts import number_of
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.run import Run

_VARIABLES: Final = {
    "max_train_steps": "MAX_NUM_STEPS",
    "num_train_epochs": "NUM_EPOCHS",
    "pretrained_model_name_or_path": "MODEL_NAME",
    "lr_scheduler": "LR_SCHEDULE",
    "gradient_checkpointing": "USE_GRADIENT_CHECKPOINTING",
    "checkpoint_step_interval": "CHECKPOINTING_STEPS",
    "validation_step_interval": "VALIDATION_STEPS",
    "checkpoints_total_limit": "CHECKPOINTING_LIMIT",
    "data_backend_config": "DATALOADER_CONFIG",
    "hub_model_id": "HUB_MODEL_NAME",
    "push_checkpoints_to_hub": "PUSH_CHECKPOINTS",
    "minimum_image_size": "MINIMUM_RESOLUTION",
    "seed": "TRAINING_SEED",
}
"""simpletuner 3.1.6 and 4.10.1 helpers/configuration/env_file.py `env_to_args_map`; elsewhere the
variable is the flag in capitals."""
_EXTRA: Final = "TRAINER_EXTRA_ARGS"
_WORD: Final = re.compile(r"\A--(\w+)(?:=(.*))?\Z", re.DOTALL)

FLOW: Final = frozenset(
    {
        *("ace_step", "auraflow", "chroma", "flux", "flux2", "hidream", "hunyuanvideo"),
        *("kandinsky5_image", "kandinsky5-image", "kandinsky5_video", "kandinsky5-video"),
        *("ltxvideo", "lumina2", "omnigen", "qwen_image", "sana", "sanavideo", "sd3", "wan"),
        *("z_image", "z-image"),
    }
)
"""simpletuner 3.1.6 helpers/models/*/model.py `PREDICTION_TYPE = PredictionTypes.FLOW_MATCHING`."""
EPSILON: Final = frozenset(
    {"kolors", "pixart", "pixart_sigma", "sd1x", "sd2x", "sdxl", "deepfloyd"}
)
"""The same files: `PredictionTypes.EPSILON` or `V_PREDICTION`."""


def configs(run: Run) -> Iterator[Document]:
    """The documents that hold SimpleTuner's flags."""
    return (each for each in run.of("simpletuner") if not each.is_view)


def said(document: Document, flag: str) -> Place | None:
    """Where a flag is written, under any of its spellings; None also where it is null."""
    names = (flag, f"--{flag}", _VARIABLES.get(flag, flag.upper()))
    found = (*(document.get(name) for name in names), extra(document).get(flag))
    return next((at for at in found if at is not None and at.value not in (None, "None", "")), None)


def extra(document: Document) -> Mapping[str, Place]:
    """The flags in TRAINER_EXTRA_ARGS of a config.env, each at the place of the variable.

    simpletuner 3.1.6 and 4.10.1 helpers/configuration/env_file.py: the text is split at blanks.
    """
    at = document.get(_EXTRA)
    if at is None or not isinstance(at.value, str):
        return {}
    flags: dict[str, Place] = {}
    name = ""
    for text in at.value.split():
        found = _WORD.match(text)
        if found is not None:
            name, value = found[1], found[2]
            flags[name] = _worth(at, True if value is None else value)
        elif name:
            flags[name] = _worth(at, text)
    return flags


def _worth(at: Place, value: object) -> Place:
    return Place(at.document, at.path, replace(at.node, value=value))


def word(document: Document, flag: str, otherwise: str = "") -> str:
    """The lower-case text of a flag."""
    at = said(document, flag)
    return str(at.value).strip().lower() if at is not None else otherwise


def is_on(at: Place | None) -> bool:
    """Whether a switch is turned on: SimpleTuner takes words as well as booleans."""
    return at is not None and str(at.value).strip().lower() in ("true", "1", "yes", "on")


def amount(at: Place | None) -> float | None:
    """The number of a flag, which may be written as text."""
    return number_of(at.value) if at is not None else None


def family(document: Document) -> str:
    """The model family in lower case; empty where nobody says it."""
    return word(document, "model_family")


def is_lora(document: Document) -> bool:
    """Whether adapters are trained."""
    return "lora" in word(document, "model_type", "full")
