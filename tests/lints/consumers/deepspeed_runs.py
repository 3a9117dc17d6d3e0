"""DeepSpeed's own parser, schedulers and optimizers, by a ds_config.json.

Runs inside an environment that holds one release of deepspeed. Verb: `read`.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any


def read(question: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of a config with so many processes: refused, and how, or what it comes to."""
    from deepspeed.runtime import config as module

    world = question.get("world", 1)
    module.dist = SimpleNamespace(get_world_size=lambda *_, **__: world, get_rank=lambda: 0)
    stage = "config"
    try:
        held = module.DeepSpeedConfig(dict(question["config"]))
        stage = "scheduler"
        rates = _rates(held)
    except Exception as refusal:  # noqa: BLE001  the refusal is the answer
        return {"refused": stage, "text": f"{type(refusal).__name__}: {refusal}"}
    return {
        "micro": held.train_micro_batch_size_per_gpu,
        "untested": held.zero_allow_untested_optimizer,
        "rates": rates,
    }


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


VERBS = {"read": read}
