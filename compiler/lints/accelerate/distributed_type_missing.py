"""accelerate is not told which engine to start."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        if document.is_view or document.get("distributed_type") is not None:
            continue
        first = next(iter(document.found.values()), None)
        if first is not None:
            yield Finding(
                f"{document.name} has no distributed_type",
                (first.key_label("refused"),),
                ("it is the one key that accelerate's file must have",),
                "write distributed_type: MULTI_GPU, DEEPSPEED, FSDP or 'NO'",
                # what the questionnaire writes begins with it: another file may be a part of one
                severity=None if document.get("compute_environment") else "warning",
            )


RULE = Rule(
    name="distributed-type-missing",
    severity="error",
    consequence="parse",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 1.15.0 commands/config/config_args.py `BaseConfig.process_config`: "
            "ValueError, A `distributed_type` must be specified in the config file; 0.30.1 "
            "`BaseConfig`: a field without a default"
        ),
    ),
    check=_check,
)
