"""One row of docs/memory-accuracy.md."""

from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import asdict

from tunec.schemas.terms import FsdpPrefetch, FsdpSharding


class Combination(Struct, frozen=True):
    """One row: a model, and what differs from a bf16 run of one sample on one device."""

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
    """Sharding of FSDP, where that is the engine."""
    version: int = 2
    """Of FSDP: 1 FullyShardedDataParallel, 2 fully_shard."""
    prefetch: FsdpPrefetch = "pre"
    """When FSDP's backward pass gathers the next unit."""
    nodes: int = 1
    """Over which the ranks are spread: hybrid sharding splits inside of one."""
    moved: bool = False
    """Whether FSDP's shards, gradients and optimizer states are on the host."""
    loss: str = "full"
    reference: str = ""
    """Of DPO and GRPO, where it is not empty: base, resident or precomputed."""
    reentrant: bool = False
    segment: int = 1
    """Layers recomputed together."""
    gap: int = 0
    """Layers after them that keep everything."""
    offload: bool = False
    """Whether the inputs of recomputed layers wait in host RAM."""
    answers: int = 0
    """Tokens that evaluation, or GRPO, writes after a prompt, both together a sequence; 0: none."""
    dora: bool = False
    merged: bool = False
    """Whether the adapters are merged on the device when the step is done."""
    rewarded: str = ""
    """What writes GRPO's answers, where it is not empty: transformers or vllm."""
    beams: int = 1
    """Candidates for each answer."""
    pictures: int = 0
    """Pictures that a denoiser is given beside the one that it paints."""
    text_only: bool = False
    """Whether no sample of a vision-language model has a picture."""

    @property
    def title(self) -> str:
        """What differs from the simplest, in a few words."""
        plain = asdict(Combination(self.model))
        named = {"method": self.method, "states": self.states}
        named |= {k: v for k, v in asdict(self).items() if v != plain[k] and k not in named}
        named.pop("model", None)
        words = [
            str(v) if k in ("method", "states", "engine") else f"{k}={v}" for k, v in named.items()
        ]
        return " ".join(words)
