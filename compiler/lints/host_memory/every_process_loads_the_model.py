"""Each process of a node loads the whole model into its RAM."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.host_memory.node import GIB, node_of, parameters, processes_of
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import stage_of

_BYTES: Final[Mapping[str, int]] = {"bf16": 2, "fp16": 2, "fp32": 4}
_HEEDED: Final = "accelerate<1.0"
"""Releases that tell transformers of stage 3 only where `zero3_init_flag` is true."""


def _check(run: Run) -> Iterator[Finding]:
    processes, place = processes_of(run), _why(run)
    if processes is None or place is None or processes < 2:
        return
    count = parameters(run)
    width = _BYTES.get(str(run.model.stored_dtype), 2) if run.model is not None else 2
    taken = width * count * processes
    is_ample = run.environment.has_memory(taken) and not run.of("slurm")
    node = None if is_ample else node_of(run)
    if not count or node is None or taken <= node.memory:
        return
    yield Finding(
        f"{node.processes} processes load {taken / GIB:.0f} GiB into {node.memory / GIB:.0f} "
        "of a node's RAM",
        (place.label("each builds the whole model"),),
        ("weights are built on the CPU, and moved to the device when all are there",),
        "use stage 3, with zero3_init_flag: true, or FSDP with cpu_ram_efficient_loading",
        sum=(
            Term("parameters", count, "parameters"),
            Term("bytes of a parameter", width, "bytes"),
            Term("processes of a node", node.processes, "processes"),
        ),
    )


def _why(run: Run) -> Place | None:
    """The key because of which every process loads everything; None: they do not, or who knows."""
    if run.value("quantization.format", "none") != "none":
        return None
    flag = run.said("accelerate", "deepspeed_config.zero3_init_flag")
    stage = stage_of(run)
    if stage.value == 3:
        is_off = flag is not None and flag.value is False and run.runs(_HEEDED) is True
        return flag if is_off else None
    if stage.value in (0, 1, 2):
        return stage.place
    return None


RULE = Rule(
    name="every-process-loads-the-model",
    severity="warning",
    consequence="out-of-memory",
    consumers=(
        "transformers",
        "deepspeed",
    ),
    sources=(
        (
            "transformers 5.23.0 modeling_utils.py `from_pretrained`: without a device map weights "
            "are built on the CPU by every process"
        ),
        (
            "deepspeed 0.19.8 runtime/zero/stage3.py `estimate_zero3_model_states_mem_needs`: "
            "without zero.Init the model times num_gpus_per_node"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `set_deepspeed_weakref`: until "
            "0.34.2 transformers is told of stage 3 if zero3_init_flag; from 1.0.1 on in any case"
        ),
    ),
    check=_check,
)
