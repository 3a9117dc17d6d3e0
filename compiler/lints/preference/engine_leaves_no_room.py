"""vLLM takes so much of a device that the policy itself does not fit beside it."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.preference.asked import GROUPED, preferences, real, trl
from tunec.compiler.lints.quantization.base import sharded_by_fsdp
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_HALF: Final = 2
"""Bytes of a parameter at the least: TRL trains in bf16 or in fp32."""
_SHARE: Final = "vllm_gpu_memory_utilization"


def _check(run: Run) -> Iterator[Finding]:
    device, model = run.environment.weakest, run.model
    if device is None or model is None or _is_split(run):
        return
    weights = model.architecture.parameters * _HALF
    for document, method in preferences(run):
        share = trl(document, _SHARE)
        number = real(share.value) if share is not None else None
        if share is None or number is None or method not in GROUPED or _sleeps(document):
            continue
        taken = int(number * device.memory)
        if not 0 < number <= 1 or not _is_beside(run, document):
            continue
        still = weights if taken + weights > device.memory else _still(run, weights)
        if taken + still > device.memory:
            yield _finding(share, (taken, still, device.memory), device.title, still > weights)


def _still(run: Run, weights: int) -> int:
    """What the policy holds between steps by the account, where it is told how much is trained."""
    from tunec.compiler.lints.memory.estimate import estimate

    found = estimate(run)
    return weights if found is None or found.is_assumed else max(weights, found.still_bytes)


def _is_split(run: Run) -> bool:
    """Whether each device holds a part of the policy, or a packed form of it."""
    stage = run.value("zero.stage")
    packed = run.value("quantization.format", "none") != "none"
    return packed or stage == 3 or sharded_by_fsdp(run) is not None


def _is_beside(run: Run, document: Document) -> bool:
    used, mode = trl(document, "use_vllm"), trl(document, "vllm_mode")
    if used is None or used.value is not True:
        return False
    return mode.value == "colocate" if mode is not None else bool(run.runs("trl>=1"))


def _sleeps(document: Document) -> bool:
    at = trl(document, "vllm_enable_sleep_mode")
    return at is not None and at.value is True


def _finding(share: Place, sizes: tuple[int, int, int], device: str, has_states: bool) -> Finding:
    taken, still, have = sizes
    gib = 2**30
    what = "weights and states" if has_states else "weights"
    rest = "activations come" if has_states else "gradients, states and activations come"
    return Finding(
        f"vLLM takes {taken / gib:.1f} GiB, the policy's {what} {still / gib:.1f} GiB, of "
        f"{have / gib:.1f} GiB",
        (share.label("of the whole device"),),
        (f"on {device}; {rest} on top",),
        "write 0.3, or vllm_enable_sleep_mode: true, or generate on devices of its own",
        sum=(Term("vLLM", taken), Term(f"{what} of the policy", still)),
    )


RULE = Rule(
    name="engine-leaves-no-room",
    severity="error",
    consequence="out-of-memory",
    consumers=("trl",),
    sources=(
        (
            "trl 0.18.2 to 1.16.0 trainer/grpo_trainer.py, generation/vllm_generation.py: "
            "LLM(gpu_memory_utilization=...) in the process that holds the model"
        ),
        "docs.vllm.ai/en/v0.10.0/configuration/engine_args.html: gpu_memory_utilization",
        "huggingface/trl#3394",
    ),
    check=_check,
)
