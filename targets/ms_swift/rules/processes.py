"""How many processes `swift rlhf` is started as."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import also
from tunec.compiler.lints.facts.launch import variable
from tunec.compiler.lints.rule import Finding, keys, rule

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


@rule(
    "engine-beside-a-spread-model",
    "error",
    "parse",
    consumers=("ms-swift",),
    reads=keys("ms-swift", "use_vllm"),
)
def engine_beside_a_spread_model(run: LintContext) -> Iterator[Finding]:
    """One process sees several devices, spreads the model over them, and vLLM is asked for."""
    uses, method = run.said("ms-swift", "use_vllm"), run.said("ms-swift", "rlhf_type")
    if uses is None or uses.value is not True or method is None:
        return
    if method.value not in ("grpo", "gkd"):
        return
    for launch in run.of("launch"):
        visible = variable(launch, _VISIBLE)
        if visible is None or variable(launch, "NPROC_PER_NODE") is not None:
            continue
        devices = [each for each in str(visible.value).split(",") if each.strip().isdigit()]
        if len(devices) > 1 and launch.value("launcher") == "ms-swift":
            yield Finding(
                f"one process spreads the model over {len(devices)} devices, and vLLM is refused",
                (visible.label("all of one process"), *also(uses, "refused")),
                ("without NPROC_PER_NODE ms-swift starts one process, with a device_map",),
                f"set NPROC_PER_NODE={len(devices)}",
            )
