"""SimpleTuner as a target: config.json, config.env for its launcher, multidatabackend.json."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.counting import Counting, count_accumulations
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.releases import Releases
from tunec.compiler.start_commands import STARTER, Start
from tunec.compiler.target import Cannot, Dialect, File, Json, Target, in_no_plan, on_deepspeed
from tunec.targets.deepspeed.config import DEEPSPEED, ds_config
from tunec.targets.deepspeed.reader import PACKAGE, PLAIN
from tunec.targets.delegation import BY_CLUSTER
from tunec.targets.simpletuner.checks import check
from tunec.targets.simpletuner.needs import needs, prefers
from tunec.targets.simpletuner.rows import data, environment, forms
from tunec.targets.simpletuner.rows.fsdp import FSDP
from tunec.targets.simpletuner.rows.model import MODEL, PRECISION
from tunec.targets.simpletuner.rows.optimizer import OPTIMIZER
from tunec.targets.simpletuner.rows.run import CHECKPOINTING, DATA_FILE, RUN
from tunec.targets.simpletuner.rows.schedule import SCHEDULE
from tunec.targets.trainers import adding_no_noise, going_on, supervised

_PATH: Final = f"simpletuner/{STARTER}"
_BODY: Final = """\
import os
import runpy

os.chdir(os.path.dirname(os.path.abspath(__file__)))
runpy.run_module("simpletuner.train", run_name="__main__")
"""
"""`simpletuner train` does not change the folder: it looks for `config/` in the working directory,
and passes the package's own train.py to accelerate (simpletuner 3.1.6 cli.py, 4.10.1 cli/train.py,
`run_training`). Launchers and clusters start this file instead, which changes to its own folder
first."""


def entry(_: Plan, __: Dialect) -> tuple[str, ...]:
    """The file that a launcher starts, relative to the root of the bundle."""
    return (_PATH,)


def _render(_: Mapping[str, Json], header: Sequence[str]) -> str:
    return "".join(f"# {line}\n" for line in header) + _BODY


def _is_started(plan: Plan) -> bool:
    return plan.launch.script == _PATH


START_PY: Final = File(
    STARTER, "text", (), lambda _: False, when=_is_started, render=_render, parse=lambda _: {}
)


_RELEASES: Final = (
    *("3.1.6", "3.2.3", "3.3.4", "4.0.6", "4.1.3", "4.2.3", "4.3.5", "4.4.1", "4.5.2", "4.6.1"),
    *("4.7.1", "4.8.0", "4.9.3", "4.10.1"),
)
_OF_OLD: Final = {"diffusers": "0.35.2", "torchao": "0.14.1", "peft": "0.18.1"}
"""Packages for 3.1.6: it imports names that diffusers 0.42 no longer has
(helpers/models/flux2/pipeline.py `USE_PEFT_BACKEND`); diffusers 0.35.2 imports no newer torchao
(quantizers/torchao), and a newer peft refuses that one (import_utils.py `is_torchao_available`)."""
_OF_NEW: Final = {"transformers": "5.18.0"}
"""Packages for releases with MageFlow: all of them import its module, which takes a name of
transformers that 5.23 no longer has (4.10.1 helpers/models/mageflow/vendor/models/modules/
text_encoder.py `Qwen3VLCausalLMOutputWithPast`); their own bound is `transformers>=5.6`."""
_SINCE: Final = Version("3.2")
_MAGEFLOW: Final = Version("4.5")


def _companions(version: Version) -> Mapping[str, str]:
    """The packages that a release needs, as pip would install the newest."""
    if version < _SINCE:
        return _OF_OLD
    return _OF_NEW if version >= _MAGEFLOW else {}


def _imports(_: Draft, version: Version) -> Iterable[str]:
    return _companions(version)


_SCHEMAS: Final = {(3, 1): "simpletuner/3.1.6.json", (4, 10): "simpletuner/4.10.1.json"}
"""The parser's own schema by minor version."""


def _schema(dialect: Dialect) -> str | None:
    version = dialect[""]
    return _SCHEMAS.get((version.major, version.minor))


def _is_config(document: Json) -> bool:
    """Whether a document is a config.json: no other trainer has model families."""
    names = document if isinstance(document, Mapping) else ()
    said = {str(name).removeprefix("--") for name in names}
    return "model_family" in said or {"data_backend_config", "model_type"} <= said


_ELSEWHERE: Final = {
    "model.parameters": "they follow from the model",
    "devices.model": "the launch command runs where it is started",
    "devices.capability": "the launch command runs where it is started",
    "devices.memory": "the launch command runs where it is started",
    "devices.budget": "nothing is bounded: the plan fits by its own account",
    "devices.reserve": "nothing is bounded: the plan fits by its own account",
    "devices.host_budget": "nothing is bounded: the plan fits by its own account",
    "data.images": "one is generated, and each folder of data.references has one reference image",
    "data.image_tokens": "they follow from the reference images",
    "data.samples": "they are counted when the data is scanned",
    "precision.loss_scaling": "accelerate scales the loss with fp16",
    "precision.initial_scale_power": "accelerate takes GradScaler as it is",
    "precision.loss_scale_window": "accelerate takes GradScaler as it is",
    "precision.hysteresis": "accelerate takes GradScaler as it is",
    "precision.min_loss_scale": "accelerate takes GradScaler as it is",
    "precision.deprecated_fp16": "only DeepSpeed asks for it",
    "adapter.targets": "they go where the family has them by default",
    "adapter.trainable_parameters": "they follow from the adapters",
    "optimizer.beta1": "the optimizer has no such moment",
    "optimizer.beta2": "the optimizer has no such moment",
    "optimizer.epsilon": "the optimizer has no such term",
    "states.autocast": "accelerate wraps the forward pass; products stay in the compute dtype",
    "states.weights": "DeepSpeed casts the module to the compute dtype",
    "states.trainable": "DeepSpeed casts the module to the compute dtype",
    "states.gradients": "DeepSpeed's own file says it",
    "states.master_weights": "DeepSpeed keeps them",
    "states.optimizer": "DeepSpeed keeps them",
    "optimizer.name": "DeepSpeed's own file says it",
    "optimizer.kernel": "DeepSpeed's own file says it",
    "optimizer.weight_decay": "DeepSpeed's own file says it",
    "schedule.kind": "DeepSpeed's own file says it",
    "schedule.warmup_steps": "DeepSpeed's own file says it",
    "batch.global": "it follows from micro batch, accumulation and processes",
    "batch.evaluation": "evaluation takes one sample at once",
    "schedule.steps": "it counts them itself, as it scans the pictures",
    "schedule.estimated_steps": "it counts them itself, as it scans the pictures",
    "schedule.warmup_share": "it counts the steps of a warm-up",
    "schedule.log_steps": "every step is logged",
    "runtime.dataloader_workers": "samples come from caches, by threads of the training process",
    "runtime.dataloader_pin_memory": "samples come from caches, by threads of the training process",
    "launch.script": "`simpletuner train` and start.py start the package's own train.py",
}
_OFFLOADS: Final = (
    *("stage", "offload_optimizer", "offload_param", "nvme_path", "pin_memory", "overlap_comm"),
    *("contiguous_gradients", "reduce_scatter", "reduce_bucket", "allgather_bucket"),
    *("prefetch_bucket", "persistence_threshold", "max_live_parameters", "max_reuse_distance"),
    *("sub_group_size", "gather_on_save", "hpz_partition", "leaf_modules"),
)
_CANNOT: Final = {
    **BY_CLUSTER,
    **{slot: Cannot(reason) for slot, reason in _ELSEWHERE.items()},
    **{f"zero.{name}": Cannot("it has no effect without DeepSpeed") for name in _OFFLOADS},
    **{slot: Cannot("another engine is used") for slot in SLOTS if slot.startswith("fsdp.")},
    **supervised("SimpleTuner"),
    **adding_no_noise("SimpleTuner"),
    **{
        f"data.{name}": Cannot("pictures and their captions are files")
        for name in ("format", "chat_template", "loss_on")
    },
    "model.kind": Cannot("SimpleTuner trains diffusion models", True, ("diffusion",)),
    "model.trust_remote_code": Cannot("its model classes are its own", True, (False,)),
    "model.published": Cannot("the files of the model itself say it"),
    "launch.launcher": Cannot("`simpletuner train` starts accelerate", True, ("accelerate",)),
}

_CONFIG: Final = tuple(
    forms.spelled_either_way(entry)
    for entry in (*MODEL, *PRECISION, *CHECKPOINTING, *OPTIMIZER, *SCHEDULE, *RUN, *FSDP)
)


def _counting(dialect: Dialect, _: Mapping[str, Any]) -> Counting:
    """Each image shape has its own batches, so the number of steps is only known for one shape.

    An accumulation continues in the next epoch, and an incomplete last one is dropped: simpletuner
    3.1.6 and 4.10.1 helpers/metadata/backends/discovery.py `__len__`, helpers/training/ trainer.py
    `train`, although `_recalculate_training_steps` counts the rest of each epoch as a step.
    """
    return Counting(f"simpletuner {dialect['']}", count_accumulations, is_exact=False)


TARGET: Final = Target(
    name="simpletuner",
    package="simpletuner",
    supported=Releases(">=3.1.6,<4.11"),
    latest=_RELEASES[-1],
    files=(
        File(
            "config/config.json",
            "json",
            _CONFIG,
            _is_config,
            _schema,
            names=("deepspeed_config", "data_backend_config"),
        ),
        File(
            "config/config.env",
            "env",
            environment.ENVIRONMENT,
            environment.recognise,
            render=environment.render,
            parse=environment.parse,
        ),
        File(DATA_FILE, "json", data.DATA, data.recognise, render=data.render, parse=data.parse),
        START_PY,
        # read as it is: what optimizer and schedule say there, SimpleTuner leaves alone
        # (helpers/training/deepspeed.py prepare_model_for_deepspeed)
        ds_config(PLAIN, when=on_deepspeed),
        File(
            "command line", "shell", _CONFIG, _is_config, when=in_no_plan, parse=forms.parse_flags
        ),
        File(
            "config.env with all flags",
            "env",
            _CONFIG,
            _is_config,
            when=in_no_plan,
            parse=forms.parse_variables,
        ),
    ),
    cannot=_CANNOT,
    requires={"launch.launcher": "accelerate"},
    needs=needs,
    prefers=prefers,
    check=check,
    counting=_counting,
    releases=_RELEASES,
    beside={PACKAGE: DEEPSPEED},
    companions=_companions,
    imports=_imports,
    starts=(Start(("simpletuner", "train"), at_home=True),),
    entry=entry,
    # schemas/json/simpletuner: `resume_from_checkpoint` is `latest` by default in every release
    goes_on=going_on("simpletuner", "resume_from_checkpoint"),
    verify="tunec.targets.simpletuner.verify",
)
"""The target for `simpletuner train` in its working directory."""
