"""Losses that TRL computes itself: in tiles, and over pairs of answers beside a reference.

The real head and the real kernel's wrapper run (trl 1.15 and later, `trainer/utils.py`
`add_fused_lm_head`, `kernels/chunked_logprob.py`); what Triton does in place allocates nothing.
"""

import importlib
import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import torch
from packaging.version import Version

from tunec.compiler.tracing.subject import Subject, Untraceable

_TILED: Final = Version("1.15")
_OUTPUTS: Final = {
    "sft": ("log_probs", "entropy", "is_top1"),
    "dpo": ("log_probs", "entropy", "mean_logits", "is_top1"),
    "grpo": ("log_probs", "entropy"),
}
"""The outputs that each trainer requests of the head per token: trl 1.16 `sft_trainer.py`,
`dpo_trainer.py` and `grpo_trainer.py`, `__init__`."""
_BETA: Final = 0.1
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def is_trls(subject: Subject) -> bool:
    """Whether TRL computes the loss.

    Raises Untraceable for losses that tracing does not support.
    """
    workload = subject.workload
    if workload.loss == "fused":
        raise Untraceable("Liger's fused loss runs on GPUs only")
    if workload.loss == "full" and (
        workload.preference is None or workload.architecture.kind == "sequence-classifier"
    ):
        return False
    if workload.loss == "full":
        raise Untraceable("answers are compared as TRL does since 1.15, in tiles")
    return _has_tiles()


def _has_tiles() -> bool:
    try:
        held = Version(importlib.metadata.version("trl"))
    except importlib.metadata.PackageNotFoundError:
        raise Untraceable("the chunked loss is part of TRL, which is not installed") from None
    if held < _TILED:
        raise Untraceable(f"tracing knows the loss of trl {_TILED} and later, not of {held}")
    return True


def add_head(subject: Subject, model: Any) -> None:
    """Add TRL's head to a causal model, with or without adapters."""
    utils = importlib.import_module("trl.trainer.utils")
    base = model.get_base_model() if subject.is_adapted else model
    utils.add_fused_lm_head(base, outputs=_OUTPUTS[_objective(subject)])


def _objective(subject: Subject) -> str:
    asked = subject.workload.preference
    if asked is None:
        return "sft"
    return "grpo" if asked.scored else "dpo"


def _sequences(subject: Subject) -> int:
    asked = subject.workload.preference
    return asked.sequences if asked is not None else 1


def loss_in_tiles(
    subject: Subject, model: Any, batch: dict[str, Any], reference: Any
) -> Callable[[], torch.Tensor]:
    """The loss as SFTTrainer and DPOTrainer compute it (trl 1.16 `_compute_loss`)."""
    asked = subject.workload.preference
    inputs = {**batch, "use_cache": False, "fused_lm_head": True}

    def supervised() -> torch.Tensor:
        out: torch.Tensor = model(**inputs).loss
        return out

    def over_pairs() -> torch.Tensor:
        outputs = model(**inputs)
        chosen, rejected = outputs.log_probs.sum(dim=1).chunk(2)
        if asked is not None and asked.reference in ("resident", "base"):
            off = model.disable_adapter() if reference is None else nullcontext()
            with torch.no_grad(), off:
                seen = (reference or model)(**inputs)
            other, worse = seen.log_probs.sum(dim=1).chunk(2)
            chosen, rejected = chosen - other, rejected - worse
        return -torch.nn.functional.logsigmoid(_BETA * (chosen - rejected)).mean()

    with_tiles = over_pairs if asked is not None and asked.sequences > 1 else supervised

    def loss() -> torch.Tensor:
        return with_tiles()

    return loss


class _Launched:
    """A kernel that is launched on a grid and allocates nothing."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *_, **__: None


@contextmanager
def tiles_as_on_gpu(subject: Subject) -> Iterator[None]:
    """Make forward and backward passes take the path of devices with Triton."""
    if not is_trls(subject):
        yield
        return
    kernel = importlib.import_module("trl.kernels.chunked_logprob")
    utils = importlib.import_module("trl.trainer.utils")
    substitutes: dict[str, Any] = {
        "triton": SimpleNamespace(cdiv=lambda a, b: -(-a // b)),
        "_addmm_fp32": lambda *_: None,
        "_forward_kernel": _Launched(),
        "_backward_kernel": _Launched(),
        "_use_triton": lambda _: True,
    }
    with ExitStack() as stack:
        for name, substitute in substitutes.items():
            # without Triton the module has no `triton`
            stack.enter_context(patch.object(kernel, name, substitute, create=True))
        stack.enter_context(patch.object(utils, "_use_triton", lambda _: True))
        for name, answer in _autocast_on_meta(subject).items():
            stack.enter_context(patch.object(torch, name, answer))
        yield


def _autocast_on_meta(subject: Subject) -> dict[str, Callable[..., Any]]:
    """The autocast functions that the kernel calls for its tensors' device, for meta."""
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    on, wide = subject.layout.states.autocast, _DTYPES[subject.workload.precision.compute]
    return {
        "is_autocast_enabled": lambda *kind: on if kind == ("meta",) else enabled(*kind),
        "get_autocast_dtype": lambda kind: wide if kind == "meta" else dtype(kind),
    }


def scored_places(subject: Subject) -> tuple[int, int]:
    """The number of labels in a micro batch, and how many of them a loss in tiles covers.

    All but the first of each sequence, or those of answers that the model generated.
    """
    data, asked = subject.workload.data, subject.workload.preference
    rows = subject.layout.batch.micro * _sequences(subject)
    labels = data.sequence + data.image_tokens - 1
    return rows * labels, rows * ((asked.scored if asked is not None else 0) or labels)
