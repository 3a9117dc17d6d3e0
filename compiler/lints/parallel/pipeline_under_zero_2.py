"""A pipeline beside the sharding of gradients."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    for document in run.of("deepspeed"):
        place = document.get("pipeline")
        if place is None or not place.node.fields or stage.value not in (2, 3):
            continue
        yield Finding(
            f"a pipeline at ZeRO stage {stage.value} is refused",
            (place.key_label("for a PipelineModule"), *also(stage.place)),
            (
                "a pipeline sums gradients over micro batches before it reduces them",
                "a model that is no PipelineModule does not read this section",
            ),
            "use stage 1, or remove pipeline",
        )


RULE = Rule(
    name="pipeline-under-zero-2",
    severity="warning",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/pipe/engine.py `PipelineEngine.__init__`: ZeRO-2 "
            "and ZeRO-3 are incompatible with pipeline parallelism"
        ),
    ),
    check=_check,
)
