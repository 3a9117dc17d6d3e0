"""Tables of rotary positions that earlier releases of transformers kept in every layer."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import States
from tunec.schemas.terms import FloatDtype

_UNTIL: Final = {
    "llama": Version("4.41"),
    "olmo": Version("4.41"),
    "mistral": Version("4.42"),
    "qwen2": Version("4.45"),
    "qwen2_moe": Version("4.45"),
    "starcoder2": Version("4.45"),
    "falcon": Version("4.45"),
    "mixtral": Version("4.48"),
}
"""The first release whose attention keeps none (`models/<family>/modeling_<family>.py`,
`register_buffer("cos_cached", ...)` in the wheels 4.40.2, 4.41.2, 4.42.4, 4.43.4, 4.44.2, 4.45.2,
4.46.3, 4.47.1 and 4.48.0). Families whose heads are turned in part have smaller ones, left out."""

_TABLES: Final = 2
"""Cosine and sine, each a row of the head's width for every position."""


def rotary_tables(workload: Workload, states: States) -> float:
    """Bytes of the tables on each rank: buffers, which nothing splits, in the loaded dtype."""
    model, version = workload.architecture, workload.version("transformers")
    until = _UNTIL.get(model.family)
    if version is None or until is None or version >= until:
        return 0.0
    width = sum(stack.layers * stack.head_dim for stack in model.stacks if stack.part == "text")
    return float(_TABLES * BYTES[_loaded(workload, states)] * (model.context or 0) * width)


def _loaded(workload: Workload, states: States) -> FloatDtype:
    """The dtype in which the model was made: k-bit preparation changes parameters alone."""
    if workload.quantization.format != "none":
        return workload.precision.compute
    return states.weights if workload.adapter.kind != "none" else states.trainable
