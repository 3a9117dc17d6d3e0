"""vLLM inside the training processes: its width has to divide them, its share to be a share."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.preference.asked import preferences, real, trl, whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KINDS: Final = ("grpo", "axolotl")


def _check(run: Run) -> Iterator[Finding]:
    for document, name in preferences(run):
        if name != "grpo" or document.kind not in _KINDS or not _generates(run, document):
            continue
        yield from _width(run, document)
        share = trl(document, "vllm_gpu_memory_utilization")
        number = None if share is None else real(share.value)
        if share is not None and number is not None and not 0 < number <= 1:
            yield Finding(
                f"vllm_gpu_memory_utilization {share.value} is no share of the memory",
                (share.label("refused by vLLM"),),
                ("above 0 and at most 1",),
                f"write {number / 100:g}" if 1 < number <= 100 else "write 0.3",
            )


def _generates(run: Run, document: Document) -> bool:
    """Whether vLLM runs in the processes of the training itself."""
    used, mode = trl(document, "use_vllm"), trl(document, "vllm_mode")
    if used is None or used.value is not True:
        return False
    return mode.value == "colocate" if mode is not None else bool(run.runs("trl>=1"))


def _width(run: Run, document: Document) -> Iterator[Finding]:
    at, world = trl(document, "vllm_tensor_parallel_size"), run.value("parallel.world")
    width = None if at is None else whole(at.value)
    if at is None or not width or not isinstance(world, int) or world % width == 0:
        return
    fitting = max(each for each in range(1, min(width, world) + 1) if world % each == 0)
    yield Finding(
        f"vllm_tensor_parallel_size {width} does not divide {world} processes",
        (at.label("refused"),),
        ("groups of that many processes hold one engine each, and every process is in one",),
        f"write {fitting}",
        sum=(Term("processes", world, ""), Term("of one engine", width, "")),
    )


RULE = Rule(
    name="vllm-width-does-not-divide",
    severity="error",
    consequence="init",
    consumers=("trl",),
    sources=(
        (
            "trl 1.16.0 generation/vllm_generation.py `VLLMGeneration._init_vllm`, 0.18.2 "
            "trainer/grpo_trainer.py: vllm_tensor_parallel_size must divide world size evenly"
        ),
        "vLLM documentation, vllm.config.cache `CacheConfig.gpu_memory_utilization`: gt 0, le 1",
        "trl 1.16.0 trainer/grpo_config.py: vllm_mode colocate is the default",
    ),
    check=_check,
)
