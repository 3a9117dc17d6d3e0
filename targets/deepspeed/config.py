"""ds_config.json as one file: its rows for each reader, and how it is recognised."""

from collections.abc import Callable
from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.releases import Package, Releases
from tunec.compiler.target import Dialect, File, Json, in_every_plan
from tunec.targets.deepspeed.batch import BATCH, TENSOR, printing
from tunec.targets.deepspeed.optimizer import optimizer
from tunec.targets.deepspeed.precision import PRECISION
from tunec.targets.deepspeed.reader import PACKAGE, Reader
from tunec.targets.deepspeed.refusals import check
from tunec.targets.deepspeed.scheduler import SCHEDULER
from tunec.targets.deepspeed.zero import AIO, ZERO

NAME: Final = "ds_config.json"

DEEPSPEED: Final = Package(
    Releases(">=0.14,<0.20"), ("0.14.5", "0.15.4", "0.16.9", "0.17.6", "0.18.9", "0.19.8")
)
"""The releases whose sources the rows were read from (git tags v0.14.0 to v0.19.5, PyPI 0.19.8)."""

FILLED: Final = frozenset(
    {
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "optimizer.params.lr",
        "optimizer.params.betas",
        "optimizer.params.eps",
        "optimizer.params.weight_decay",
        "scheduler.params.warmup_min_lr",
        "scheduler.params.warmup_max_lr",
        "scheduler.params.warmup_num_steps",
        "scheduler.params.total_num_steps",
        "fp16.enabled",
        "bf16.enabled",
        "zero_optimization.reduce_bucket_size",
        "zero_optimization.stage3_prefetch_bucket_size",
        "zero_optimization.stage3_param_persistence_threshold",
    }
)
"""Keys whose `auto` the trainer fills in: transformers 4.40.2 to 5.23.0 integrations/deepspeed.py
`HfTrainerDeepSpeedConfig.trainer_config_process` and `trainer_config_finalize`. DeepSpeed drops
`auto` from any other key of a block, so that key's default holds (deepspeed 0.14.5 to 0.19.8
runtime/config_utils.py `DeepSpeedConfigModel.__init__`)."""

_BLOCKS = ("fp16", "bf16", "bfloat16", "zero_optimization", "aio")
_KEYS = ("zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu")
_TYPED = ("optimizer", "scheduler")


def _is_config(document: Json) -> bool:
    """Whether a document has DeepSpeed's own keys, or a mapping where other files have a flag.

    Other programs have optimizer and schedule blocks too (LitGPT, torchtune, fairseq), but those
    name a class and have neither `type` nor `params`.
    """
    if not isinstance(document, dict):
        return False
    blocks = any(isinstance(document.get(name), dict) for name in _BLOCKS)
    return blocks or any(name in document for name in _KEYS) or _is_typed(document)


def _is_typed(document: dict[str, Json]) -> bool:
    held = [document.get(name) for name in _TYPED]
    return any(isinstance(each, dict) and ("type" in each or "params" in each) for each in held)


def _schema(dialect: Dialect) -> str:
    major, minor = (*dialect[PACKAGE].release, 0)[:2]
    return f"deepspeed/{major}.{minor}.json"


def ds_config(reader: Reader, when: Callable[[Plan], bool] = in_every_plan) -> File:
    """ds_config.json for a reader. A trainer has a schedule of its own, so the file has none."""
    schedule = () if reader.is_trainer else SCHEDULER
    return File(
        name=NAME,
        format="json",
        entries=(
            *BATCH,
            *PRECISION,
            *optimizer(reader),
            *schedule,
            *ZERO,
            *AIO,
            *TENSOR,
            *printing(reader),
        ),
        recognise=_is_config,
        schema=_schema,
        when=when,
        check=check(reader),
        filled=FILLED if reader.is_trainer else frozenset(),
    )
