"""Models are to be built in shards at a stage that keeps them whole."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        flag = document.get("deepspeed_config.zero3_init_flag")
        stage = document.get("deepspeed_config.zero_stage")
        if flag is None or stage is None or flag.value is not True:
            continue
        if stage.value in (0, 1, 2):
            yield Finding(
                f"zero3_init_flag does nothing at stage {stage.value}",
                (flag.label("turned off"), stage.label("", primary=False)),
                ("accelerate warns and goes on",),
                "write false, or zero_stage: 3",
                Fix((flag.replaced(False),), "safe"),
            )


RULE = Rule(
    name="zero-3-init-below-stage-3",
    severity="warning",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: "
            "DeepSpeed Zero3 Init flag is only applicable for ZeRO Stage 3. Setting it to False"
        ),
    ),
    check=_check,
)
