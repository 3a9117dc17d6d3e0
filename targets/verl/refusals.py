"""What verl does not run, or runs otherwise than planned."""

from typing import Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.targets.scripts.refusals import Refusal
from tunec.targets.verl.packages import SOURCE


def _is_no_parquet(plan: Plan) -> bool:
    evaluation = plan.data.evaluation
    names = (*training_data(plan), *((evaluation,) if evaluation else ()))
    return any(not each.endswith(".parquet") for each in names)


REFUSALS: Final = (
    Refusal(
        ("parallel.engine",),
        "it trains under FSDP, on one device too",
        lambda plan: plan.parallel.engine in ("ddp", "deepspeed"),
        f"{SOURCE} workers/engine/fsdp/transformer_impl.py `_build_fsdp_module`",
        "set `engine: fsdp`, or leave it out",
    ),
    Refusal(
        ("launch.launcher",),
        "it joins the processes that torchrun starts, one process too",
        lambda plan: plan.launch.launcher != "torchrun",
        f"{SOURCE} utils/distributed.py `initialize_global_process_group`",
        "set `launcher: torchrun`, or leave it out",
    ),
    Refusal(
        ("data.train",),
        "it reads Parquet files, whose column `messages` has conversations",
        _is_no_parquet,
        f"{SOURCE} utils/dataset/multiturn_sft_dataset.py `_read_files_and_process`",
        "write the data to Parquet (`datasets.Dataset.to_parquet`), and name files ending in "
        ".parquet",
    ),
    Refusal(
        ("optimizer.max_grad_norm",),
        "it always clips gradients, and at a norm of 0 none is left",
        lambda plan: plan.optimizer.max_grad_norm == 0,
        f"{SOURCE} workers/engine/fsdp/transformer_impl.py `optimizer_step`",
        "set `train.optimizer.max_grad_norm` above 0",
    ),
)
