"""The number of processes of `swift rlhf`."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.launch import count, variable
from tunec.compiler.lints.rule import Finding, keys, rule

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


@rule("error", "parse", consumers=("ms-swift",), reads=keys("ms-swift", "use_vllm"))
def engine_beside_a_spread_model(run: LintContext) -> Iterator[Finding]:
    """One process spreads the model over several devices, and vLLM is requested."""
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


_GROUP: Final = "num_generations"
_BATCH: Final = "per_device_train_batch_size"


@rule("error", "parse", consumers=("ms-swift",), reads=keys("ms-swift", _GROUP))
def answers_not_in_whole_groups(run: LintContext) -> Iterator[Finding]:
    """The generation batch does not consist of whole groups.

    ms-swift 4.6.0 rlhf_trainers/args_mixin.py `_init_generation_batch_params`.
    """
    for launch in run.of("launch"):
        processes = variable(launch, "NPROC_PER_NODE")
        world = count(processes)
        if processes is not None and world and variable(launch, "NNODES") is None:
            for document in run.of("ms-swift"):
                if document.value("rlhf_type") == "grpo" and document.name == launch.name:
                    yield from _groups(document, processes, world)


def _groups(document: Document, processes: Place, world: int) -> Iterator[Finding]:
    at, micro_at = document.get(_GROUP), document.get(_BATCH)
    steps_at = document.get("steps_per_generation")
    if steps_at is None:
        steps_at = document.get("gradient_accumulation_steps")
    group, steps = count(at), count(steps_at)
    micro = 1 if micro_at is None else count(micro_at)
    if at is None or steps_at is None or not (group and steps and micro):
        return
    batch = micro * world * steps
    if document.get("generation_batch_size") is not None or batch % group == 0:
        return
    yield Finding(
        f"ms-swift generates {batch} answers at a time, which make no whole groups of {group}",
        (
            at.label("refused"),
            *also(micro_at, "a process"),
            *also(processes, "processes"),
            *also(steps_at, "batches at a time"),
        ),
        (f"{_GROUP} is the number of answers to a prompt, which are compared with each other",),
        f"let {_BATCH} x processes x {steps_at.path} be a multiple of {group}",
        sum=(
            Term("answers a process", micro, ""),
            Term("processes", world, ""),
            Term("batches at a time", steps, ""),
        ),
    )
