"""Rows of ds_config.json for the batch, clipping, printing and tensor parallelism."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, constant, derived, same
from tunec.schemas.frozen import replace
from tunec.targets.deepspeed.reader import PACKAGE, Reader

_CONFIG = "deepspeed 0.14.5 to 0.19.8 runtime/config.py"


def _world_is_known(plan: Plan) -> bool:
    """Whether every reader of the file counts the same data parallel width.

    At stage 3 `deepspeed.zero.Init` reads the file before torch.distributed knows the world size,
    assumes 1 and rejects the product (deepspeed 0.14.5 to 0.19.8
    runtime/zero/partition_parameters.py `Init.__init__`). With tensor or sequence parallelism the
    trainer multiplies by all processes (transformers integrations/deepspeed.py
    `trainer_config_process`).
    """
    return plan.zero.stage < 3 and plan.parallel.world == plan.parallel.data


BATCH = (
    same(
        "train_batch_size",
        "batch.global",
        f"{_CONFIG} `_batch_assertion`",
        when=_world_is_known,
        package=PACKAGE,
    ),
    same(
        "train_micro_batch_size_per_gpu",
        "batch.micro",
        f"{_CONFIG} `get_train_micro_batch_size_per_gpu`",
        package=PACKAGE,
    ),
    same(
        "gradient_accumulation_steps",
        "batch.accumulation",
        f"{_CONFIG} `_set_batch_related_parameters`: 1 with the micro batch alone",
        default=1,
        package=PACKAGE,
    ),
    same(
        "gradient_clipping",
        "optimizer.max_grad_norm",
        "deepspeed runtime/constants.py `GRADIENT_CLIPPING_DEFAULT`: 0 to 0.19.2, 1.0 from 0.19.3",
        absent=((ALWAYS, 0.0), ("0.19.3", 1.0)),
        package=PACKAGE,
    ),
)

_PRINTED: Final = "steps_per_print"
_ASKED: Final = replace(
    same(
        _PRINTED,
        "schedule.log_steps",
        "deepspeed runtime/constants.py `STEPS_PER_PRINT_DEFAULT`: 10, never from 0.15.2",
        package=PACKAGE,
    ),
    absent=((ALWAYS, {"schedule.log_steps": 10}), ("0.15.2", {})),
)
_OVERRULED: Final = replace(
    derived(
        _PRINTED,
        lambda plan: plan.schedule.log_steps,
        "accelerate 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: it is inf, "
        "whatever the file says",
        package=PACKAGE,
    ),
    yields=True,
)
_TIMING: Final = replace(
    constant(
        "wall_clock_breakdown",
        False,
        f"{_CONFIG} `get_wall_clock_breakdown`: timers synchronise the device at every step",
        package=PACKAGE,
    ),
    yields=True,
)


def printing(reader: Reader) -> tuple[Entry, ...]:
    """Rows for DeepSpeed's own log lines, which a trainer's log lines replace."""
    return (_OVERRULED if reader.is_trainer else _ASKED, _TIMING)


def _write_tensor(plan: Plan) -> Mapping[str, Any]:
    width = plan.parallel.tensor
    return {"tensor_parallel.autotp_size": width} if width > 1 else {}


def _read_tensor(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"parallel.tensor": max(1, found["tensor_parallel.autotp_size"])}


_TENSOR = Entry(
    ("tensor_parallel.autotp_size",),
    ("parallel.tensor",),
    _write_tensor,
    _read_tensor,
    "deepspeed 0.16.4 runtime/tensor_parallel/config.py `autotp_size`: 0 is none",
    since="0.16.4",
    absent=((ALWAYS, {"parallel.tensor": 1}),),
    package=PACKAGE,
)
_NO_TENSOR = Entry(
    (),
    ("parallel.tensor",),
    lambda _: {},
    lambda _: {},
    "deepspeed 0.14.5 to 0.16.3 runtime/config.py: training has no tensor parallel block",
    until="0.16.4",
    absent=((ALWAYS, {"parallel.tensor": 1}),),
    package=PACKAGE,
)
TENSOR = (_TENSOR, _NO_TENSOR)
