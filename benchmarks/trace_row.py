"""One row of docs/memory-accuracy.md."""

from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import asdict

from tunec.schemas.terms import FsdpPrefetch, FsdpSharding


class Combination(Struct, frozen=True):
    """One row: a model, and the differences from a bf16 run of one sample on one device."""

    model: str
    method: str = "full"
    """full, lora, qlora (kbit: with fp32 norms and head, under autocast) or int8."""
    states: str = "bf16"
    sequence: int = 2048
    micro: int = 1
    checkpointed: bool = False
    packing: bool = True
    optimizer: str = "adamw"
    kernel: str = "fused"
    attention: str = "sdpa"
    engine: str = "none"
    world: int = 1
    stage: int = 0
    tensor: int = 1
    """Ranks that share each layer, by DeepSpeed's AutoTP."""
    ulysses: int = 1
    """Ranks that share each sequence, by DeepSpeed's attention over them."""
    accumulation: int = 1
    targets: tuple[str, ...] = ()
    dropout: float = 0.0
    zero: dict[str, Any] = field(default_factory=dict)
    fsdp: FsdpSharding | Literal[""] = ""
    """Sharding of FSDP, if that is the engine."""
    version: int = 2
    """Version of FSDP: 1 is FullyShardedDataParallel, 2 is fully_shard."""
    prefetch: FsdpPrefetch = "pre"
    """When FSDP's backward pass gathers the next unit."""
    nodes: int = 1
    """Number of nodes of the ranks: hybrid sharding shards inside of a node."""
    moved: bool = False
    """Whether FSDP's shards, gradients and optimizer states are on the host."""
    loss: str = "full"
    reference: str = ""
    """Kind of reference of DPO and GRPO, if not empty: base, resident or precomputed."""
    reentrant: bool = False
    segment: int = 1
    """Number of layers that are recomputed together."""
    gap: int = 0
    """Number of layers after them that keep everything."""
    offload: bool = False
    """Whether the inputs of recomputed layers wait in host RAM."""
    answers: int = 0
    """Tokens that evaluation or GRPO generates after a prompt, which both fill a sequence; 0:
    none."""
    dora: bool = False
    merged: bool = False
    """Whether the adapters are merged on the device after the step."""
    rewarded: str = ""
    """Generator of GRPO's answers, if not empty: transformers or vllm."""
    beams: int = 1
    """Number of beams per answer."""
    pictures: int = 0
    """Number of reference pictures of a denoiser, beside the one that it paints."""
    text_only: bool = False
    """Whether no sample of a vision-language model has a picture."""

    @property
    def title(self) -> str:
        """The differences from the simplest row, in a few words."""
        plain = asdict(Combination(self.model))
        named = {"method": self.method, "states": self.states}
        named |= {k: v for k, v in asdict(self).items() if v != plain[k] and k not in named}
        named.pop("model", None)
        words = [
            str(v) if k in ("method", "states", "engine") else f"{k}={v}" for k, v in named.items()
        ]
        return " ".join(words)
