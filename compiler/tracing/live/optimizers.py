"""Optimizers: torch's own if they run on meta; for others, states of the right size."""

import math
from collections.abc import Iterable
from typing import Any, Final, Protocol

import torch

from tunec.compiler.analyses.memory.terms.optimizer import MOMENTS, is_paged
from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.subject import Subject
from tunec.schemas.terms import STEPS_IN_BACKWARD

_BLOCK: Final = 256
_SMALL: Final = 4096
"""bitsandbytes 0.44 `optim/optimizer.py`: elements that share a scale; smaller tensors keep fp32
states (`min_8bit_size`)."""

_PAGED: Final = 100_000
"""bitsandbytes 0.50.2 `optim/optimizer.py`, `get_state_buffer`: elements from which a paged
optimizer's states are in managed memory, which torch's allocator does not see."""


class Steps(Protocol):
    """The interface of an optimizer that a trace needs."""

    def step(self) -> Any:
        """Update the parameters."""
        ...

    def tensors(self) -> Iterable[torch.Tensor]:
        """All tensors that the optimizer keeps between steps."""
        ...


def optimizer_of(
    subject: Subject,
    parameters: list[torch.nn.Parameter],
    embeddings: Iterable[int] = (),
    model: torch.nn.Module | None = None,
) -> Steps:
    """The optimizer of a plan over the parameters that it trains.

    `embeddings`: the identities of embedding weights, whose 8-bit states transformers' Trainer
    keeps in 32 bits (5.23 `trainer.py`, `register_module_override`). `model`: the model whose
    backward pass steps, if the optimizer steps there.
    """
    slots, kernel = subject.workload.optimizer, subject.workload.optimizer.kernel
    if slots.name == "adafactor":
        from transformers.optimization import Adafactor

        return _Own(Adafactor(parameters, lr=1e-3, scale_parameter=False, relative_step=False))
    if slots.name == "adamw" and kernel in ("foreach", "loop"):
        return _Own(torch.optim.AdamW(parameters, lr=1e-4, foreach=kernel == "foreach"))
    if slots.name == "sgd":
        return _Own(torch.optim.SGD(parameters, lr=1e-4, foreach=kernel != "loop"))
    if slots.name in STEPS_IN_BACKWARD and model is not None:
        return _InBackward(slots.name, model)
    moments, dtype = MOMENTS[slots.name], subject.layout.states.optimizer
    how = {"paged": is_paged(slots), "follows": kernel != "bitsandbytes"}
    return _Kernel(parameters, moments, dtype, embeddings, **how)


class _Own:
    """One of torch's or transformers' optimizers, in Python."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> Any:
        return self.optimizer.step()

    def tensors(self) -> Iterable[torch.Tensor]:
        for states in self.optimizer.state.values():
            yield from (each for each in states.values() if isinstance(each, torch.Tensor))


class _InBackward:
    """lomo-optim's own hooks; what the pass leaves is stepped after it (`fused_backward`).

    On tensors without data nothing moves to a device, and no number bounds the rate.
    """

    def __init__(self, name: str, model: torch.nn.Module) -> None:
        from lomo_optim import adalomo, lomo

        there = replaced(torch.Tensor, "cuda", lambda tensor: tensor)
        with there:
            made = {"lomo": lomo.Lomo, "adalomo": adalomo.AdaLomo}[name](model)
        adalomo.max = lambda least, _: least
        self.optimizer: Any = made

    def step(self) -> Any:
        self.optimizer.step_num = 1
        return self.optimizer.grad_func(0)

    def tensors(self) -> Iterable[torch.Tensor]:
        for kept in ("exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"):
            yield from getattr(self.optimizer, kept, {}).values()


class _Kernel:
    """A fused or bitsandbytes kernel: it makes its states at the first step, and no temporaries."""

    def __init__(
        self,
        parameters: list[torch.nn.Parameter],
        moments: int,
        dtype: str,
        embeddings: Iterable[int],
        *,
        paged: bool,
        follows: bool,
    ) -> None:
        """`follows`: whether states are never wider than their parameter, as torch makes them."""
        self.parameters, self.moments, self.dtype = parameters, moments, dtype
        self.embeddings, self.paged, self.follows = frozenset(embeddings), paged, follows
        self.states: list[torch.Tensor] = []

    def step(self) -> Any:
        for parameter in self.parameters if self.paged else ():
            self._come(parameter)
        if self.states:
            return
        for parameter in self.parameters:
            if parameter.grad is not None:
                self.states += [each for _ in range(self.moments) for each in self._new(parameter)]

    def _come(self, parameter: torch.Tensor) -> None:
        """Keep a tensor's managed memory on the device while the tensor is stepped.

        The driver moves it there, without the allocator's knowledge.
        """
        if parameter.grad is not None and parameter.numel() >= _PAGED:
            wide = id(parameter) in self.embeddings or self.dtype != "int8"
            kind = torch.float32 if wide else torch.uint8
            shape = (self.moments, parameter.numel())
            torch.empty(shape, dtype=kind, device=parameter.device)

    def _new(self, parameter: torch.Tensor) -> list[torch.Tensor]:
        device, elements = parameter.device, parameter.numel()
        paged = self.paged and elements >= _PAGED
        wide = elements < _SMALL or id(parameter) in self.embeddings
        if self.dtype != "int8" or wide:
            dtype = torch.bfloat16 if self.dtype in ("bf16", "fp16") else torch.float32
            narrow = self.follows and parameter.element_size() < dtype.itemsize
            dtype = parameter.dtype if narrow else dtype
            return [] if paged else [torch.empty(elements, dtype=dtype, device=device)]
        scales = torch.empty(math.ceil(elements / _BLOCK), dtype=torch.float32, device=device)
        whole = [] if paged else [torch.empty(elements, dtype=torch.uint8, device=device)]
        return [*whole, scales]

    def tensors(self) -> Iterable[torch.Tensor]:
        return self.states
