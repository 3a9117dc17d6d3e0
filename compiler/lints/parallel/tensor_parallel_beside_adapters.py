"""Tensor parallelism by DeepSpeed of a model that carries adapters."""

from collections.abc import Iterator

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import stage_of


def _check(run: Run) -> Iterator[Finding]:
    adapter = run.observed("adapter.kind")
    if adapter is None or adapter.value != "lora" or stage_of(run).value not in (1, 2):
        return
    carried = run.place(adapter)
    for place in run.each("deepspeed", "tensor_parallel.autotp_size"):
        if is_number(place.value) and place.value > 1:
            yield Finding(
                f"autotp_size {place.value} stops on a model with adapters",
                (
                    place.label("refused, by a KeyError"),
                    *([carried.label("", primary=False)] if carried is not None else []),
                ),
                ("AutoTP replaces the layers that hold the adapters, which ZeRO then cannot name",),
                "train all weights, or leave out tensor_parallel",
            )


RULE = Rule(
    name="tensor-parallel-beside-adapters",
    severity="error",
    consequence="init",
    consumers=("deepspeed>=0.19.8",),
    sources=(
        (
            "deepspeed 0.19.8 runtime/zero/stage_1_and_2.py `_create_param_mapping`: KeyError of "
            "`param_names`, in a run of peft 0.21.2 with tensor_parallel.autotp_size 2"
        ),
    ),
    check=_check,
)
