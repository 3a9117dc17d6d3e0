"""Layers recomputed together, with gaps that keep everything, and inputs that wait on the host.

The loop over the layers is the model's own: the first layer of each segment is replaced by a module
that runs the whole segment in one checkpoint, as SimpleTuner's transformers do (4.6 to 4.10
`helpers/training/gradient_checkpointing_interval.py`, `checkpoint_sequential_state`) and
SwissArmyTransformer does (0.4.12 `model/transformer.py`, `BaseTransformer.forward`).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from tunec.compiler.tracing.subject import Subject

_STREAMS: Final = ("hidden_states", "encoder_hidden_states")
"""Names of the inputs that a block of a diffusion transformer takes and returns."""


def needs_segments(subject: Subject) -> bool:
    """Whether the plan's checkpointing differs from the model's own."""
    asked = subject.layout.activation_checkpointing
    alone = (asked.segment, asked.gap) == (1, 0)
    return not alone or (asked.offload and subject.workload.architecture.kind == "diffusion")


def recompute_in_segments(subject: Subject, model: torch.nn.Module) -> None:
    """Replace layers of a model by the segments of a plan."""
    asked = subject.layout.activation_checkpointing
    moves = asked.offload and subject.workload.architecture.kind == "diffusion"
    for layers in _lists(subject, model):
        every, window = list(layers), asked.segment + asked.gap
        for start in range(0, len(every), window):
            together = every[start : start + asked.segment]
            layers[start] = _Segment(together, moves=moves)
        for place in reversed(range(len(every))):
            if 0 < place % window < asked.segment:
                del layers[place]


def _lists(subject: Subject, model: torch.nn.Module) -> Iterator[torch.nn.ModuleList]:
    """The lists of layers of the trained model, without towers."""
    architecture = subject.workload.architecture
    parts = ("text", "denoiser")
    names = {m.path.partition(".{}")[0] for m in architecture.modules if m.part in parts}
    for path, module in model.named_modules():
        found = any(path == name or path.endswith(f".{name}") for name in names)
        if found and isinstance(module, torch.nn.ModuleList):
            yield module


class _Segment(torch.nn.Module):  # type: ignore[misc]  # torch is not typed
    """Layers that run in one checkpoint."""

    def __init__(self, layers: list[torch.nn.Module], *, moves: bool) -> None:
        super().__init__()
        self.layers, self.moves = torch.nn.ModuleList(layers), moves

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the layers one after the other; the arguments are those of a single layer."""
        streams = [kwargs.pop(name) for name in _STREAMS if name in kwargs]
        by_name = bool(streams)  # what the function names, checkpointing keeps on the device

        def run(*states: Any) -> Any:
            for layer in self.layers:
                if by_name:
                    named = dict(zip(_STREAMS, states, strict=False))
                    encoded, hidden = layer(**named, **kwargs)
                    states = (hidden, encoded)
                else:
                    states = (layer(*states, **kwargs), *states[1:])
            return states[::-1] if by_name else states[0]

        with _on_the_host() if self.moves else nullcontext():
            return checkpoint(run, *(streams or args), use_reentrant=False)


def _on_the_host() -> AbstractContextManager[Any]:
    """SimpleTuner's hooks (4.0.6 to 4.10.1 `offloaded_gradient_checkpointer.py` `CPUOffloadHooks`).

    A copy on the host takes no memory here.
    """

    def pack(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
        return tensor.shape, tensor.dtype

    def unpack(packed: tuple[torch.Size, torch.dtype]) -> torch.Tensor:
        return torch.empty(packed[0], dtype=packed[1], device="meta")

    hooks: AbstractContextManager[Any] = saved_tensors_hooks(pack, unpack)
    return hooks
