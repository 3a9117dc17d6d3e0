"""Groups of ranks that share a layer or a sequence: requested by pins, never chosen."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.rank import unknown
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.passes.fit.problem import Problem, Shape

_SHARES_SEQUENCES: Final = {
    "deepspeed": Version("0.18.2"),
    "accelerate": Version("1.12"),
    "transformers": Version("5.0"),
    "trl": Version("1.16"),
}
"""The first releases of each program that a shared sequence takes: accelerate 1.12.0
parallelism_config.py (`sp_size`) and accelerator.py `_prepare_deepspeed` (DeepSpeed); transformers
5.0.0 trainer.py `compute_loss`, which 4.57.6 does not have; trl 1.16.0 trainer/sft_trainer.py,
whose collator is the first to give the positions that DeepSpeed asks for (not in 1.9.2)."""


_COUNTS_TENSOR: Final = Version("4.57")
"""transformers 4.57.6 trainer.py has `get_tp_size`, and 4.51.3 does not."""


def impossible_groups(problem: Problem, shape: Shape) -> str | None:
    """Why groups of ranks cannot run as a shape has them; None if they can, or if there are none.

    All ranks of a group wait for each other in every layer, so a group stays within one node.
    """
    ways = shape.tensor * shape.sequence
    if ways == 1:
        return None
    if shape.engine != "deepspeed":
        return "of the engines that files can select, only DeepSpeed splits layers or sequences"
    if shape.tensor > 1 and shape.sequence > 1:
        # deepspeed 0.19.8 runtime/sequence_parallel/parallel_state_sp.py: "1 additional dimension"
        return (
            "DeepSpeed combines data parallelism with tensor or sequence parallelism, not with both"
        )
    if shape.per_node % ways:
        return f"groups of {ways} ranks do not divide nodes of {shape.per_node} devices"
    if shape.tensor > 1:
        return _tensor(problem, shape)
    return _sequence(problem.workload, shape.sequence)


def _tensor(problem: Problem, shape: Shape) -> str | None:
    """Why layers cannot be split: rules of DeepSpeed and of transformers' loader."""
    version = problem.workload.version("transformers")
    if version is not None and version < _COUNTS_TENSOR:
        return f"transformers counts batches by ranks that share layers from 4.57 on, not {version}"
    if shape.stage == 3:
        # deepspeed to 0.19.3 runtime/engine.py `_configure_tensor_parallel_states`; transformers
        # 5.0.0 to 5.23.0 integrations/deepspeed.py `_apply_weight_conversions_to_state_dict`
        return "AutoTP is not planned beside ZeRO-3, which splits the same weights"
    return unknown(problem.workload, shape.tensor)


def _sequence(workload: Workload, ways: int) -> str | None:
    """Why sequences cannot be split: what DeepSpeed's Ulysses attention needs or breaks."""
    model = workload.architecture
    if model.kind != "causal-lm" or workload.preference is not None or model.remote_code:
        return "only causal language models share sequences, trained on given texts"
    for name, first in _SHARES_SEQUENCES.items():
        version = workload.version(name)
        if version is not None and version < first:
            return f"{name} shares sequences from {first} on, not in {version}"
    stack = model.stacks[0]
    if stack.heads % ways or (stack.kv_heads % ways and ways % stack.kv_heads):
        return f"{stack.heads} heads, {stack.kv_heads} of keys, do not spread over {ways} ranks"
    if workload.data.sequence % ways:
        return f"{workload.data.sequence} tokens do not divide by {ways} ranks"
    return _attention(workload)


def _attention(workload: Workload) -> str | None:
    """Masks are dropped (deepspeed 0.19.8 `ulysses_sp.py`, `register_with_transformers`)."""
    kernel, data = workload.attention.implementation, workload.data
    if kernel == "eager":
        return "eager attention needs a mask, which ranks that share a sequence do not have"
    if kernel != "sdpa":
        return None
    if data.packing:
        return (
            "sdpa would let packed texts attend to each other, since shared sequences have no mask"
        )
    windows = (stack.window or data.sequence for stack in workload.architecture.stacks)
    if any(window < data.sequence for window in windows):
        return "sdpa would attend beyond the model's window, since shared sequences have no mask"
    return None
