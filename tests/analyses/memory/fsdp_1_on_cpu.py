"""How much each further layer adds to the peak of a backward pass under torch's own FSDP 1.

Layers have a frozen weight and a trained one in a unit of its own, as peft's policy makes it, and
are recomputed. Tensors are small and real; the process group is torch's `fake` one.
"""

import weakref
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

WIDTH, TOKENS = 32, 4096


class Adapter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.base.weight.requires_grad_(False)
        self.adapter = Adapter()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.base(x) + self.adapter(x))


class Stack(torch.nn.Module):
    def __init__(self, layers: int, *, reentrant: bool) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer() for _ in range(layers)])
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


class Watching(TorchDispatchMode):
    """Bytes of storages alive, and the most that there were."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.now = self.most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None) -> Any:
        out = function(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, torch.Tensor):
                self._follow(value.untyped_storage())
        return out

    def _follow(self, storage: Any) -> None:
        key = storage._cdata
        if key not in self.alive:
            self.alive[key] = storage.nbytes()
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self.alive.pop(key, 0)


def layer_bytes(*, reentrant: bool) -> float:
    """What a layer adds to the peak, in tensors of all tokens."""
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        few, many = (_peak(layers, reentrant=reentrant) for layers in (4, 8))
    finally:
        torch.distributed.destroy_process_group()
    return (many - few) / (4 * 4 * WIDTH * TOKENS)


def _peak(layers: int, *, reentrant: bool) -> int:
    model = FullyShardedDataParallel(
        Stack(layers, reentrant=reentrant),
        auto_wrap_policy=ModuleWrapPolicy({Layer, Adapter}),
        use_orig_params=False,
        device_id=torch.device("cpu"),
    )
    with Watching() as seen:
        for _ in range(2):
            x = torch.zeros(TOKENS, WIDTH, requires_grad=True)
            loss = model(x).sum()
            seen.most = seen.now
            loss.backward()
            for each in model.parameters():
                each.grad = None
            del x, loss
    return seen.most
