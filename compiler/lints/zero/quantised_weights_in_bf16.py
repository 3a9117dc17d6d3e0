"""Weights that ZeRO++ quantises come back in fp16, and the run is in bf16."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, said_in, stage_of

_KEYS: Final = ("zero_quantized_weights", "zero_quantized_nontrainable_weights")


def _check(run: Run) -> Iterator[Finding]:
    if stage_of(run).value != 3 or run.value("precision.compute") != "bf16":
        return
    for each in said_in(run, _KEYS):
        if each.value is True:
            where = run.place(run.slot("precision.compute"))
            yield Finding(
                f"{each.path.rpartition('.')[2]} in a run of bf16",
                (each.label("weights come back in fp16"), *also(where)),
                ("expected mat1 and mat2 to have the same dtype",),
                "train in fp16, or remove it",
            )


RULE = Rule(
    name="quantised-weights-in-bf16",
    severity="error",
    consequence="step",
    consumers=("deepspeed<0.19",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.18.9 runtime/zero/partition_parameters.py "
            "`CUDAQuantizer.dequantize`, ops/csrc/quantization/pt_binding.cpp "
            "`dequantize<__half>`: always fp16; in 0.19.8 cast to the parameter's dtype"
        ),
        "deepspeedai/DeepSpeed#4885: float != c10::BFloat16; #3992, #4852, #7775",
    ),
    check=_check,
)
