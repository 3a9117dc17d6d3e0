"""Widths of parallelism in accelerate's file whose product is not the number of processes."""

import math
from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.accelerate.counted import count, engine
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_MEGATRON = tuple(f"megatron_lm_config.megatron_lm_{each}_degree" for each in ("tp", "pp"))
_MESH = tuple(
    f"parallelism_config.parallelism_config_{each}_size"
    for each in ("dp_replicate", "dp_shard", "tp", "cp")
)
_OF_DEEPSPEED = "parallelism_config.parallelism_config_sp_size"
"""Groups that DeepSpeed makes itself, and whose number accelerate does not compare."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        world = count(document, "num_processes")
        if world is None or document.is_view:
            continue
        started = engine(document)
        if started is not None and started.value == "MEGATRON_LM":
            yield from _of(document, _MEGATRON, world, exactly=False)
        sequence = count(document, _OF_DEEPSPEED)
        if sequence is None or sequence[0] == 1:
            yield from _of(document, _MESH, world, exactly=True)


def _of(
    document: Document, keys: tuple[str, ...], world: tuple[int, Place], *, exactly: bool
) -> Iterator[Finding]:
    widths = [found for key in keys if (found := count(document, key)) is not None]
    product = math.prod(number for number, _ in widths)
    number, said = world
    fits = product == number if exactly else number % product == 0
    if not widths or product == 1 or fits:
        return
    yield Finding(
        f"widths of {' x '.join(str(each) for each, _ in widths)} for {number} processes",
        (
            *(place.label("", primary=place is widths[0][1]) for _, place in widths),
            said.label(f"{number} processes", primary=False),
        ),
        (
            "the product of the widths has to be the number of processes"
            if exactly
            else "the processes have to divide into groups of tensor x pipeline width",
        ),
        f"start {product} processes, or change a width",
        sum=tuple(Term(place.path.rpartition(".")[2], each, "processes") for each, place in widths),
    )


RULE = Rule(
    name="widths-do-not-make-processes",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 1.10.1 to 1.15.0 parallelism_config.py `_validate_accelerator`: total_size "
            "does not match num_processes"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `MegatronLMPlugin`: tp_degree, "
            "pp_degree; NVIDIA/Megatron-LM megatron/training/arguments.py `validate_args`: world "
            "size is not divisible by total_model_size"
        ),
    ),
    check=_check,
)
