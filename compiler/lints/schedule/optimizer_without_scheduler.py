"""DeepSpeed's optimizer without a scheduler of its own, for a Trainer that asks for both."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if not run.of("trainer") or run.runs("transformers>=4.30,<4.33") is not True:
        return
    for document in run.of("deepspeed"):
        section = document.get("optimizer")
        if section is None or document.get("scheduler") is not None:
            continue
        yield Finding(
            "the DeepSpeed file has an optimizer and no scheduler",
            (section.key_label("refused alone"),),
            ("these releases ask for both of DeepSpeed's, or for none; from 4.33 on they mix",),
            "add a scheduler, such as WarmupDecayLR with auto, or remove the optimizer",
        )


RULE = Rule(
    name="optimizer-without-scheduler",
    severity="error",
    consequence="init",
    consumers=("transformers>=4.30,<4.33",),
    sources=(
        (
            "transformers 4.30.0, 4.30.2, 4.31.0 and 4.32.1 deepspeed.py `deepspeed_optim_sched`: "
            "ValueError, found `optimizer` configured in the DeepSpeed config, but no `scheduler`; "
            "4.29.2 and 4.33.3: none"
        ),
        "huggingface/transformers#24359, deepspeedai/DeepSpeedExamples#600, zjunlp/KnowLM#30",
    ),
    check=_check,
)
