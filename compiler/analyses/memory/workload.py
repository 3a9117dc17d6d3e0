"""What the memory and time accounts are asked about: a workload, and one candidate layout of it."""

from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from tunec.compiler.ir.slots import (
    ActivationCheckpointing,
    Adapter,
    AttentionKernel,
    Batch,
    Data,
    Optimizer,
    Parallel,
    Precision,
    Quantization,
    States,
    Zero,
)
from tunec.schemas.models.architecture import Architecture, Module

Loss = Literal["full", "fused", "chunked"]
"""How logits become a loss: all at once; by Liger's fused linear cross entropy; or, as TRL's
`loss_type="chunked_nll"`, 256 tokens at a time under checkpointing."""


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """What a search over layouts leaves as it is.

    Workloads are equal only if they are the same object: a search builds one and asks about it a
    thousand times, so that the accounts remember by identity and hash nothing large.
    """

    architecture: Architecture
    components: tuple[Architecture, ...]
    """Models that stay on the device beside the trained one: text encoders, VAE."""
    data: Data
    precision: Precision
    attention: AttentionKernel
    quantization: Quantization
    adapter: Adapter
    optimizer: Optimizer
    adapted: tuple[Module, ...]
    """Modules that carry a LoRA adapter."""
    trained: tuple[Module, ...]
    """Modules trained in full: all that is not frozen, or `also_train` beside an adapter."""
    versions: tuple[tuple[str, str], ...] = ()
    """Versions of the consumers, such as `("transformers", "4.46.3")`; absent: the newest known."""
    loss: Loss = "full"
    nodes: int = 1
    dataloader_workers: int = 0
    """Data loading processes of each rank."""
    kept_evaluation_batches: int = 0
    """Evaluation batches whose logits stay on the device. transformers' Trainer keeps none when it
    only computes the loss, and with `compute_metrics` all of them until
    `eval_accumulation_steps`."""
    expandable_segments: bool = False
    """Whether PYTORCH_CUDA_ALLOC_CONF holds `expandable_segments:True`."""

    def version(self, consumer: str) -> Version | None:
        """The version of a consumer; none: unknown, to be taken as the newest."""
        return next((Version(text) for name, text in self.versions if name == consumer), None)


@dataclass(frozen=True, slots=True)
class Layout:
    """One candidate of the search."""

    parallel: Parallel
    states: States
    zero: Zero
    activation_checkpointing: ActivationCheckpointing
    batch: Batch
