"""GRPO's generation batch is given twice, or does not fit the batch of a step."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.preference.asked import preferences, shared, trl, whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document, name in preferences(run):
        batch = trl(document, "generation_batch_size")
        if name != "grpo" or batch is None:
            continue
        steps = trl(document, "steps_per_generation")
        if steps is not None:
            yield Finding(
                "generation_batch_size and steps_per_generation are both set",
                (batch.label("refused"), steps.label("", primary=False)),
                ("each follows from the other",),
                "keep one of them",
            )
        elif (global_ := _global(run, document)) and (whole(batch.value) or 0) % global_:
            yield Finding(
                f"generation_batch_size {batch.value} is no multiple of the {global_} samples "
                "that all processes take at once",
                (batch.label("refused"),),
                (),
                f"write {global_ * max(1, round((whole(batch.value) or 1) / global_))}",
            )


def _global(run: Run, document: Document) -> int | None:
    micro = shared(document, "per_device_train_batch_size")
    count, world = whole(micro.value) if micro is not None else None, run.data_parallel
    return count * world if count is not None and world is not None else None


RULE = Rule(
    name="generation-batch-given-twice",
    severity="error",
    consequence="parse",
    consumers=("trl>=0.18",),
    sources=(
        (
            "trl 0.27.2 to 1.16.0 trainer/grpo_config.py `GRPOConfig.__post_init__`: "
            "'generation_batch_size' and 'steps_per_generation' can not be both configured at the"
            " same time; must be divisible by the global batch size; 0.17.0 has neither field"
        ),
    ),
    check=_check,
)
