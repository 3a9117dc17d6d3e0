"""Where DeepSpeed's Muon works correctly: read in every release from 0.17.6 to 0.19.8."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.muon import has_convolutions
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.passes.fit.problem import Shape

_FIRST: Final = Version("0.18.7")
"""runtime/engine.py `_configure_basic_optimizer` before hands it parameters without gradients;
before 0.18.3 `set_optimizer_flags` does not look at names."""
_UNSHARDED: Final = Version("0.19.7")
"""runtime/zero/muon/muon_optimizer.py `step` before takes every gradient for an update."""
_AT_STAGE_3: Final = Version("0.19.8")
_NO_CONVOLUTIONS: Final = Version("0.19.7")
"""From here to 0.19.8 `muon_update` chooses between a matrix and the weight's own four
dimensions."""


def impossible_muon(workload: Workload, shape: Shape) -> str | None:
    """Why Muon cannot train in a shape; None if it can, or if another optimizer is used."""
    if workload.optimizer.name != "muon":
        return None
    if shape.engine != "deepspeed":
        return "only the DeepSpeed engine has Muon"
    if shape.tensor > 1:
        return "each rank would orthogonalise its own part of a matrix, which is not Muon"
    if shape.offload_optimizer != "none":
        return (
            "Muon orthogonalises on the device, and would have to fetch the matrices for every step"
        )
    version = workload.version("deepspeed")
    if (version is None or version >= _NO_CONVOLUTIONS) and has_convolutions(workload):
        return f"DeepSpeed's Muon stops at the weight of a convolution from {_NO_CONVOLUTIONS} on"
    return None if version is None else _in_release(version, shape.stage)


def _in_release(version: Version, stage: int) -> str | None:
    if version < _FIRST:
        return f"DeepSpeed's Muon leaves embeddings and frozen weights alone from {_FIRST} on"
    if stage == 0 and version < _UNSHARDED:
        return f"without ZeRO, DeepSpeed's Muon orthogonalises nothing before {_UNSHARDED}"
    if stage == 3 and version < _AT_STAGE_3:
        return (
            "ZeRO-3 moves Muon's momenta once a bucket and micro batch, not once a step, before "
            f"DeepSpeed {_AT_STAGE_3} (its issue 8443)"
        )
    return None
