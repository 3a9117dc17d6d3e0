"""vLLM on devices that it does not run on."""

from collections.abc import Iterator

from tunec.compiler.lints.hardware.capability import below, with_capability
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    device = below(run, 7)
    if device is None:
        return
    places = [*run.each("trainer", "use_vllm"), *run.each("axolotl", "trl.use_vllm")]
    for place in places:
        if place.value is True:
            yield Finding(
                f"{with_capability(device)} is too old for vLLM",
                (place.label("needs 7.0"),),
                ("vLLM's kernels are built for compute capability 7.0 and more",),
                "generate with transformers: use_vllm: false",
            )


RULE = Rule(
    name="vllm-without-hardware",
    severity="error",
    consequence="init",
    consumers=("trl",),
    sources=(
        "vLLM documentation, Installation, GPU: NVIDIA compute capability 7.0 or higher (0.10)",
    ),
    check=_check,
)
