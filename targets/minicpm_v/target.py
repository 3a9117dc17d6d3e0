"""The minicpm-v target: a launch script with the flags of finetune.py, and DeepSpeed's file."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.start_commands import Start
from tunec.compiler.target import Json, Target, on_deepspeed
from tunec.targets.deepspeed.config import DEEPSPEED, ds_config
from tunec.targets.deepspeed.reader import PACKAGE, TRAINER
from tunec.targets.huggingface.counting import counting
from tunec.targets.huggingface.packages import schema_of
from tunec.targets.huggingface.target import TARGET as HUGGINGFACE
from tunec.targets.huggingface.target import TRAINING_ARGS
from tunec.targets.huggingface.training import optimizer_packages
from tunec.targets.minicpm_v.refusals import REFUSALS
from tunec.targets.minicpm_v.rows import FILE, FLAGS, OWN, SCRIPT, START, TEXT
from tunec.targets.minicpm_v.versions import RELEASES, companions, schema
from tunec.targets.scripts.command import FLAGS as BLOCK
from tunec.targets.scripts.command import Style, commander
from tunec.targets.scripts.file import (
    checked,
    command_file,
    command_rows,
    every,
    own_script,
    passing,
)
from tunec.targets.scripts.refusals import refusing
from tunec.targets.trainers import evaluating_by_loss, reading_one_part

NAME: Final = "finetune.sh"


def _word(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _underscored(name: str) -> str:
    """A flag with underscores; transformers hf_argparser.py accepts `--output-dir` too."""
    return name.replace("-", "_")


STYLE: Final = Style(text=TEXT, spreads=True, words=_word, known_as=_underscored)
_ENTRIES: Final = command_rows(
    ("python", "torchrun", "deepspeed"),
    lambda _: SCRIPT,
    f"{FILE}, started in its own folder",
    START,
    FLAGS,
)


_REQUIRES: Final[Mapping[str, Any]] = {
    # finetune/trainer.py `compute_loss` calls the model and not its wrapper, so that under
    # DistributedDataParallel no gradient is exchanged (torch csrc/distributed/c10d/reducer.cpp
    # `autograd_hook`); from transformers 4.46 on its `training_step` leaves out the division by the
    # accumulated micro batches, which DeepSpeed makes itself; and without DeepSpeed GradScaler
    # unscales no gradient of the fp16 copies that modules_to_save makes.
    "parallel.engine": "deepspeed"
}

TARGET: Final = Target(
    name="minicpm-v",
    package="transformers",
    supported=RELEASES.supported,
    latest=RELEASES.latest,
    releases=RELEASES.releases,
    files=(
        command_file(
            NAME,
            _ENTRIES,
            STYLE,
            passing("llm_type", "tune_vision"),
            every(
                checked(NAME, _ENTRIES, BLOCK, schema, others=OWN.__contains__),
                checked(
                    NAME,
                    _ENTRIES,
                    BLOCK,
                    schema_of("training_arguments", "", TRAINING_ARGS.entries),
                    others=lambda key: key not in OWN,
                ),
            ),
            names=(f"{BLOCK}.deepspeed",),
        ),
        ds_config(TRAINER, when=on_deepspeed),
    ),
    cannot={
        **HUGGINGFACE.cannot,
        **evaluating_by_loss("finetune.py of MiniCPM-V"),
        **reading_one_part("finetune.py of MiniCPM-V"),
        "launch.script": own_script("minicpm-v"),
    },
    requires=_REQUIRES,
    check=refusing("minicpm-v", REFUSALS),
    beside={PACKAGE: DEEPSPEED},
    companions=companions,
    imports=optimizer_packages,
    starts=(Start(("bash",), NAME, repository="OpenBMB/MiniCPM-V (finetune)"),),
    command=commander(STYLE),
    counting=counting,
    verify="tunec.targets.minicpm_v.verify",
)
