"""The visualglm target: a launch script with the flags, and DeepSpeed's file over them."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.analyses.counting import Counting, count_one_stream
from tunec.compiler.ir.plan import Draft
from tunec.compiler.releases import Releases
from tunec.compiler.start_commands import Start
from tunec.compiler.target import Dialect, File, Target
from tunec.schemas.frozen import replace
from tunec.schemas.spec import Spec
from tunec.targets.deepspeed.config import DEEPSPEED, ds_config
from tunec.targets.deepspeed.reader import PACKAGE, PLAIN
from tunec.targets.deepspeed.scheduler import SCHEDULER
from tunec.targets.deepspeed.target import TARGET as ENGINE
from tunec.targets.scripts.command import FLAGS as BLOCK
from tunec.targets.scripts.command import Style, commander
from tunec.targets.scripts.file import checked, command_file, command_rows, own_script, passing
from tunec.targets.scripts.refusals import Refusal, refusing
from tunec.targets.trainers import supervised, training_plainly
from tunec.targets.visualglm.rows import (
    FILE,
    FLAGS,
    ON_THE_HOST,
    SAT,
    SCRIPT,
    START,
    TEXT,
    counts_iterations,
)

NAME: Final = "finetune_visualglm.sh"
VERSION: Final = "0.4.12"

STYLE: Final = Style(text=TEXT, switches=True, spreads=True)
_ENTRIES: Final = command_rows(
    ("python", "torchrun", "deepspeed"), lambda _: SCRIPT, FILE, START, FLAGS
)


def schema(_: Dialect) -> str:
    """The path below `schemas/json/` of the schema of the flags."""
    return f"visualglm/{VERSION}.json"


def _engine() -> File:
    """DeepSpeed's file without a schedule: SwissArmyTransformer sets the learning rate itself."""
    file = ds_config(PLAIN)
    rest = (each for each in file.entries if each not in SCHEDULER)
    return replace(file, entries=(*rest, ON_THE_HOST))


REFUSALS: Final = (
    Refusal(
        ("precision.compute",),
        "it hands pictures on in fp32 unless it computes in fp16, which a bf16 model does not take",
        lambda plan: plan.precision.compute == "bf16",
        f"{FILE} `get_batch`: img.half() for fp16 alone",
        "compute in fp16 or fp32",
    ),
    Refusal(
        ("runtime.seed",),
        "it refuses a seed that is not above 0",
        lambda plan: plan.runtime.seed < 1,
        f"{SAT} arguments.py `set_random_seed`",
        "choose another seed",
    ),
    Refusal(
        ("schedule.evaluation_steps", "data.evaluation"),
        "without evaluation data it silently evaluates nothing",
        lambda plan: plan.schedule.evaluation_steps is not None and plan.data.evaluation is None,
        f"{SAT} data_utils/configure_data.py `make_loaders`: do_valid",
        "give data.evaluation, or no evaluations",
    ),
    Refusal(
        ("schedule.epochs", "batch.accumulation"),
        "it takes each micro batch of its epochs for a step, so that the data end before the run",
        lambda plan: plan.batch.accumulation > 1 and not counts_iterations(plan),
        f"{SAT} training/deepspeed_training.py `training_main`: train_iters = len(train_data)",
        "give data.samples or train.steps, or pin batch.accumulation to 1",
    ),
)


def _counting(dialect: Dialect, _: Mapping[str, Any]) -> Counting:
    """An epoch is a part of one stream of samples: data_utils/datasets.py `RandomDataset`."""
    return Counting(f"SwissArmyTransformer {dialect['']}", count_one_stream)


_REQUIRES: Final[Mapping[str, Any]] = {
    "parallel.engine": "deepspeed",
    "precision.tf32": False,
    "activation_checkpointing.mode": "layer",
    "activation_checkpointing.reentrant": True,
    "schedule.keep_checkpoints": None,
    "runtime.report_to": ("tensorboard",),
}


def _needs(spec: Spec, _: Draft) -> Mapping[str, Any]:
    """Pin a constant schedule with warmup, unless the spec names another."""
    named = "schedule" in spec.train.model_fields_set
    return {} if named else {"schedule.kind": "constant_with_warmup"}


TARGET: Final = Target(
    name="visualglm",
    package="SwissArmyTransformer",
    supported=Releases(f"=={VERSION}"),
    latest=VERSION,
    releases=(VERSION,),
    files=(
        command_file(
            NAME,
            _ENTRIES,
            STYLE,
            passing("max_source_length"),
            checked(NAME, _ENTRIES, BLOCK, schema),
            names=(f"{BLOCK}.deepspeed_config",),
            schema=schema,
        ),
        _engine(),
    ),
    cannot={
        **ENGINE.cannot,
        **supervised("SwissArmyTransformer's training loop"),
        **training_plainly("SwissArmyTransformer"),
        "launch.script": own_script("visualglm"),
    },
    requires=_REQUIRES,
    needs=_needs,
    check=refusing("visualglm", REFUSALS),
    beside={PACKAGE: DEEPSPEED},
    starts=(Start(("bash",), NAME, repository="THUDM/VisualGLM-6B"),),
    command=commander(STYLE),
    counting=_counting,
    verify="tunec.targets.visualglm.verify",
)
