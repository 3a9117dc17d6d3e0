"""DeepSpeed's own parser, schedulers, optimizers and engine, by a ds_config.json.

Runs inside an environment that holds one release of deepspeed. Verbs: `read`, `recompute`.
"""

import importlib
import os
import socket
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch


def read(question: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of a config with so many processes: refused, and how, or what it comes to."""
    from deepspeed.runtime import config as module

    world = question.get("world", 1)
    processes = SimpleNamespace(get_world_size=lambda *_, **__: world, get_rank=lambda: 0)
    stage = "config"
    try:
        with patch.object(module, "dist", processes):
            held = module.DeepSpeedConfig(dict(question["config"]))
        stage = "scheduler"
        rates = _rates(held)
        stage = "zenflow"
        _zenflow(held)
        stage = "experts"
        _experts(held, world)
    except Exception as refusal:  # noqa: BLE001  the refusal is the answer
        return {"refused": stage, "text": f"{type(refusal).__name__}: {refusal}"}
    return {
        "micro": held.train_micro_batch_size_per_gpu,
        "untested": held.zero_allow_untested_optimizer,
        "rates": rates,
        "ways": getattr(getattr(held, "tensor_parallel_config", None), "autotp_size", None),
    }


def _zenflow(held: Any) -> None:
    """What the engine makes of ZenFlow's block, in releases that have it, where there is one."""
    block = getattr(held.zero_config, "zenflow", None)
    if block is None:
        return
    from deepspeed.runtime.zenflow.engine import configure_zenflow

    configure_zenflow(
        SimpleNamespace(
            zenflow_config=lambda: block, training_dataloader=None, _config=SimpleNamespace()
        )
    )


def _experts(held: Any, world: int) -> None:
    """What the engine asks of the experts' groups, in releases that lay experts on processes."""
    block = getattr(held, "expert_parallel_config", None)
    if block is None or not block.enabled:
        return
    from deepspeed.module_inject.auto_ep_config import validate_autoep_config

    validate_autoep_config(block, world, 1, held.tensor_parallel_config.autotp_size or 1, 1)


def _rates(held: Any) -> list[float]:
    """The rates of the first steps, by the scheduler as the engine builds it."""
    import torch
    from deepspeed.runtime.engine import DeepSpeedEngine

    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=1e-3)
    engine = SimpleNamespace(
        scheduler_name=lambda: held.scheduler_name,
        scheduler_params=lambda: held.scheduler_params,
    )
    scheduler = DeepSpeedEngine._scheduler_from_config(engine, optimizer)
    if scheduler is None:
        return []
    rates = []
    for _ in range(50):
        scheduler.step()
        rates.append(float(optimizer.param_groups[0]["lr"]))
    return rates


def recompute(question: Mapping[str, Any]) -> dict[str, Any]:
    """A backward pass of a frozen layer and a trained one, recomputed: what it says, if it fails.

    One process of a group of its own; recomputation is torch's, `reentrant` or not.
    """
    import deepspeed
    import torch

    _alone(deepspeed)
    model = _recomputed(question["reentrant"])
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=[each for each in model.parameters() if each.requires_grad],
        config=dict(question["config"]),
    )
    dtype = next(engine.module.parameters()).dtype
    try:
        engine.backward(engine(torch.ones(1, 8, dtype=dtype, requires_grad=True)).sum())
    except Exception as refusal:  # noqa: BLE001  the refusal is the answer
        return {"refused": "step", "text": f"{type(refusal).__name__}: {refusal}"}
    return {}


def _alone(deepspeed: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "DS_ACCELERATOR": "cpu"}
    os.environ.update(place, RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_SIZE="1")
    # compiled for a minute; gloo does without. `deepspeed.comm.torch` is torch itself (import *)
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # type: ignore[attr-defined]
    deepspeed.init_distributed("gloo")


def _recomputed(reentrant: bool) -> Any:
    """A norm that is frozen and a linear layer that is trained, recomputed as one."""
    import torch
    from torch.utils.checkpoint import checkpoint

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 8))
            self.layers[0].requires_grad_(False)

        def forward(self, x: Any) -> Any:
            return checkpoint(self.layers, x, use_reentrant=reentrant)

    return Model()


VERBS = {"read": read, "recompute": recompute}
