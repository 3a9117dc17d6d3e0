"""DeepSpeed's own Muon on meta tensors, and a substitute for the fused Adam of its other half."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.subject import Subject

_RATE = 1e-4


def block_of(subject: Subject) -> dict[str, Any]:
    """The `optimizer` block of the DeepSpeed file for a plan with Muon."""
    slots = subject.workload.optimizer
    params = {"lr": _RATE, "momentum": 0.95, "betas": [slots.beta1, slots.beta2], "eps": 1e-8}
    return {"type": "Muon", "params": params | {"weight_decay": slots.weight_decay}}


class FusedAdam(torch.optim.Optimizer):  # type: ignore[misc]  # torch is not typed
    """DeepSpeed's kernel: two moments of the parameter's dtype at the first step, no temporaries.

    deepspeed 0.19.8 `ops/adam/fused_adam.py`, `FusedAdam.step`.
    """

    def __init__(self, groups: Any, **_: Any) -> None:
        super().__init__(groups, {"lr": _RATE})

    def step(self, _: Any = None) -> None:
        """Make the moments of each parameter that has a gradient but no moments yet."""
        for group in self.param_groups:
            for each in group["params"]:
                state = self.state.setdefault(each, {})
                if each.grad is not None and not state:
                    state["exp_avg"] = torch.zeros_like(each)
                    state["exp_avg_sq"] = torch.zeros_like(each)


@contextmanager
def on_meta() -> Iterator[None]:
    """Run Newton-Schulz iterations without compilation, and no kernel that needs a build."""
    from deepspeed.runtime.engine import DeepSpeedEngine

    name = "get_optimizer_configuration"
    with torch.compiler.set_stance("force_eager"):
        if not hasattr(DeepSpeedEngine, name):
            yield
            return
        with replaced(DeepSpeedEngine, name, lambda *_, **__: (FusedAdam, {})):
            yield
