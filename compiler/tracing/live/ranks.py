"""DeepSpeed's groups of ranks that share a layer or a sequence, over a fake process group.

Groups are made before a trace begins, since torch reads the numbers of ranks from tensors.
"""

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from tunec.compiler.tracing.live.batches import Batch
from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.live.step import Loss
from tunec.compiler.tracing.subject import Subject


@contextmanager
def sharing_ranks(subject: Subject, model: torch.nn.Module) -> Iterator[Any]:
    """The tensor or sequence parallel groups of a layout; yields the unit of the latter, or None.

    DeepSpeed caches groups, including those of plain ZeRO, and would return them in the next trace
    of this process (`tunec trace --save` makes two).
    """
    parallel = subject.layout.parallel
    groups = importlib.import_module("deepspeed.utils.groups")
    with ExitStack() as stack:
        stack.callback(groups._release_process_group_references)  # noqa: SLF001
        if parallel.tensor == 1 and parallel.sequence == 1:
            yield None
            return
        comm = importlib.import_module("deepspeed.comm")
        comm.init_distributed(dist_backend="fake", auto_mpi_discovery=False, verbose=False)
        if parallel.tensor > 1:
            groups._init_tp_mesh_device(parallel.tensor)  # noqa: SLF001  what the engine calls
            stack.enter_context(_layers_in_shares(parallel.tensor))
        yield None if parallel.sequence == 1 else _sequences_in_shares(subject, model)


@contextmanager
def _layers_in_shares(ways: int) -> Iterator[None]:
    """Answer AutoTP's requests to other ranks: the size of their part of the vocabulary.

    AutoTP also compares the first batch with theirs (`check_dataloader_inputs_same_across_ranks`).
    """
    loss = importlib.import_module("deepspeed.sequence.cross_entropy")
    engine = importlib.import_module("deepspeed.runtime.engine").DeepSpeedEngine
    configure = engine._configure_tensor_parallel_states  # noqa: SLF001

    def configured(self: Any, model: torch.nn.Module) -> None:
        configure(self, model)
        self.first_dataloader_check.remove()

    with ExitStack() as stack:
        stack.enter_context(
            replaced(loss, "_validate_vocab_shard_bounds", lambda size, *_: size * ways)
        )
        stack.enter_context(replaced(engine, "_configure_tensor_parallel_states", configured))
        yield


def _sequences_in_shares(subject: Subject, model: torch.nn.Module) -> Any:
    """Wrap DeepSpeed's attention over all ranks of a sequence around the model's own attention.

    `Accelerator.prepare` does this (accelerate 1.15 `_prepare_deepspeed`).
    """
    ulysses = importlib.import_module("deepspeed.runtime.sequence_parallel.ulysses_sp")
    return ulysses.UlyssesSPAttentionHF.register_with_transformers(
        model_name_or_path=model,
        core_attn_implementation=model.config._attn_implementation,  # noqa: SLF001
        sequence_parallel_size=subject.layout.parallel.sequence,
        micro_batch_size=subject.layout.batch.micro,
        seq_length_is_variable=True,
        disable_in_eval=True,
    )


def loss_over_ranks(subject: Subject, model: Any, batch: Batch) -> Loss:
    """The Trainer's loss of a sequence that ranks share (transformers 5.23)."""
    shared = importlib.import_module("transformers.integrations.deepspeed")
    ranks = SimpleNamespace(sp_backend="deepspeed", sp_size=subject.layout.parallel.sequence)

    def loss() -> torch.Tensor:
        found: torch.Tensor = shared.deepspeed_sp_compute_loss(
            None, model, dict(batch), return_outputs=False, pc=ranks
        )
        return found

    return loss
