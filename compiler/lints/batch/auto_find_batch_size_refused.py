"""The trainer is to look for a batch size under an engine that cannot change it."""

from collections.abc import Iterator

from tunec.compiler.lints.batch.counts import engine_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    find = run.said("trainer", "auto_find_batch_size")
    if find is None or find.value is not True:
        return
    engine = engine_of(run)
    stage = run.effective("deepspeed", "zero_optimization.stage")
    if engine == "DeepSpeed" and stage.value == 3:
        name, others = "ZeRO-3", [stage.place]
    elif engine and run.runs("transformers<4.46"):
        name, others = engine, [run.said("trainer", "deepspeed", "fsdp")]
    else:
        return
    yield Finding(
        f"auto_find_batch_size does not go with {name}",
        (find.label("refused"), *(e.label("", primary=False) for e in others if e is not None)),
        ("the engine is built for one micro batch; it cannot be wrapped anew",),
        "remove auto_find_batch_size, and write a batch size that fits",
    )


RULE = Rule(
    name="auto-find-batch-size-refused",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.46.3 to 5.23.0 trainer.py `create_accelerator_and_postprocess`: "
            "ValueError for `auto_find_batch_size` with ZeRO-3; 4.40.2 and 4.44.2 raise for any "
            "DeepSpeed and for FSDP"
        ),
    ),
    check=_check,
)
