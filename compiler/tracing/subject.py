"""The subject of a trace: a model's own config, with the workload and layout of the account."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.schemas.frozen import replace


class Untraceable(Exception):
    """A trace cannot show the subject; the message says what is not traced, and why."""


class Subject(Struct, frozen=True):
    """One run. `config` is the model's whole config.json, or the facts that define its modules."""

    config: Mapping[str, Any]
    workload: Workload
    layout: Layout

    @property
    def family(self) -> str:
        """`model_type` of a Hugging Face config, or the diffusers class."""
        return self.workload.architecture.family

    @property
    def is_adapted(self) -> bool:
        """Whether adapters are trained on a frozen base."""
        return self.workload.adapter.kind != "none"

    @property
    def is_checkpointed(self) -> bool:
        """Whether layers keep only their inputs."""
        return self.layout.activation_checkpointing.mode == "layer"

    @property
    def is_flash(self) -> bool:
        """Whether attention is that of the flash-attn package."""
        return self.workload.attention.implementation == "flash_attention_2"

    @property
    def is_padded(self) -> bool:
        """Whether samples of different lengths share a micro batch, so that a mask is needed."""
        several = self.layout.batch.micro > 1 or self.workload.preference is not None
        masked = not self.workload.data.packing and not self.workload.architecture.source
        return several and masked

    @property
    def evaluates(self) -> bool:
        """Whether evaluation is traced: of text, by the loss or by answers, on whole models.

        Ranks that share layers or sequences part for it, and FSDP 1 makes its parameters whole.
        """
        workload, parallel = self.workload, self.layout.parallel
        asked = workload.data.evaluation is not None or workload.evaluated is not None
        whole = parallel.tensor * parallel.sequence == 1 and self.layout.fsdp.version != 1
        plain = workload.preference is None and workload.architecture.kind != "diffusion"
        return asked and whole and plain

    def with_micro(self, micro: int) -> "Subject":
        """A copy with another micro batch, in samples per device."""
        batch = replace(self.layout.batch, micro=micro)
        return replace(self, layout=replace(self.layout, batch=batch))
