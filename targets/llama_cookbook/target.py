"""The llama-cookbook target: a launch script with the flags of `llama_cookbook.finetuning`."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.analyses.counting import Counting, Epoch
from tunec.compiler.ir.plan import Draft
from tunec.compiler.releases import Releases
from tunec.compiler.start_commands import Start
from tunec.compiler.target import Cannot, Dialect, Json, Target
from tunec.schemas.spec import Spec
from tunec.targets.huggingface.target import TARGET as HUGGINGFACE
from tunec.targets.llama_cookbook.fsdp import FSDP
from tunec.targets.llama_cookbook.refusals import REFUSALS
from tunec.targets.llama_cookbook.rows import FLAGS, PACKAGE, SCRIPT, START, TEXT
from tunec.targets.scripts.command import FLAGS as BLOCK
from tunec.targets.scripts.command import Style, commander
from tunec.targets.scripts.file import checked, command_file, command_rows, own_script, passing
from tunec.targets.scripts.refusals import refusing
from tunec.targets.trainers import evaluating_by_loss, reading_one_part, training_plainly

NAME: Final = "finetuning.sh"
VERSION: Final = "0.0.5.post1"
"""The only release under this name on PyPI; llama-recipes 0.0.5.post2 only depends on it."""


def _word(value: Json) -> str:
    """A value in fire's syntax: a Python literal, as is a list of names in JSON."""
    return json.dumps(value) if isinstance(value, list) else str(value)


STYLE: Final = Style(text=TEXT, words=_word, makes="output_dir")
"""model_checkpointing/checkpoint_handler.py `save_model_checkpoint` creates no directory: without
one, full training fails when it saves its first epoch."""
_ENTRIES: Final = command_rows(
    ("python", "torchrun"), lambda _: SCRIPT, f"{PACKAGE}: python -m", START, FLAGS
)
_MARKS: Final = ("enable_fsdp", "use_peft", "batch_size_training", "model_name", "use_fp16")


def schema(_: Dialect) -> str:
    """The path below `schemas/json/` of the schema of the flags."""
    return f"llama-cookbook/{VERSION}.json"


_REQUIRES: Final[Mapping[str, Any]] = {
    "optimizer.kernel": "foreach",
    "precision.tf32": False,
    "schedule.kind": "constant",
    "schedule.warmup_share": None,
    "schedule.warmup_steps": 0,
    "schedule.log_steps": 1,
    "schedule.save_steps": None,
    "schedule.keep_checkpoints": 1,
}


_ALONE: Final[Mapping[str, Any]] = {
    "parallel.engine": "none",
    "activation_checkpointing.mode": "none",
}
_ON_FSDP: Final[Mapping[str, Any]] = {
    **FSDP,
    "launch.launcher": "torchrun",  # finetuning.py `main` reads its variables
    "activation_checkpointing.mode": "layer",
    "activation_checkpointing.reentrant": True,
}


def _needs(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Pin one process on one device, or its own FSDP, the only engines that it has.

    Autocast is used with fp16 only: utils/train_utils.py `train`.
    """
    devices = draft.groups.get("devices")
    if devices is None:
        return {}
    is_sharded = spec.engine == "fsdp" or (
        spec.engine is None and devices.nodes * devices.per_node > 1
    )
    engine = _ON_FSDP if is_sharded else _ALONE
    precision = draft.groups.get("precision")
    if precision is None:
        return engine
    return {**engine, "states.autocast": precision.compute == "fp16"}


def _steps(epoch: Epoch, epochs: float) -> int:
    """Only whole batches are used, and the last one of an epoch ends an accumulation.

    utils/config_utils.py `get_dataloader_kwargs`: drop_last; utils/train_utils.py `train`.
    """
    batches = epoch.rows // epoch.micro // epoch.processes
    return int(epochs) * math.ceil(batches / epoch.accumulation)


def _counting(_: Dialect, __: Mapping[str, Any]) -> Counting:
    """The counting of steps; data/concatenator.py `ConcatDataset` joins all samples."""
    return Counting(PACKAGE, _steps, "concatenated")


_CANNOT: Final = {
    **HUGGINGFACE.cannot,
    **evaluating_by_loss("llama-cookbook"),
    **training_plainly("llama-cookbook"),
    **reading_one_part("llama-cookbook"),
    "launch.script": own_script("llama-cookbook"),
    "model.kind": Cannot(
        "`finetuning.py` trains models that write text", True, ("causal-lm", "vision-language")
    ),
    "data.sequence": Cannot("padded samples are as long as the data set makes them"),
}
_COMPANIONS: Final = {"transformers": "4.57.6", "accelerate": "1.12.0", "peft": "0.18.1"}
"""The newest releases beside which it was seen to train. It bounds none of them itself, and what it
imports is not in accelerate 1.15.0: utils/train_utils.py, `is_ccl_available`."""

TARGET: Final = Target(
    name="llama-cookbook",
    package="llama-cookbook",
    supported=Releases(f"=={VERSION}"),
    latest=VERSION,
    releases=(VERSION,),
    files=(
        command_file(
            NAME,
            _ENTRIES,
            STYLE,
            passing(*_MARKS),
            checked(NAME, _ENTRIES, BLOCK, schema),
            schema=schema,
        ),
    ),
    cannot=_CANNOT,
    requires=_REQUIRES,
    companions=lambda _: _COMPANIONS,
    counting=_counting,
    needs=_needs,
    check=refusing("llama-cookbook", REFUSALS),
    starts=(Start(("bash",), NAME),),
    command=commander(STYLE),
    verify="tunec.targets.llama_cookbook.verify",
)
