"""LoRA is put on the head, whose weight the loss takes by itself."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import last, loras
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if not run.of("dpo", "grpo", "kto", "rloo"):
        return
    for lora in loras(run):
        at = lora.place("target_modules")
        if lora.document.kind not in ("dpo", "grpo", "kto", "rloo", "peft") or at is None:
            continue
        if isinstance(lora.targets, tuple) and any(
            last(each) == "lm_head" for each in lora.targets
        ):
            yield Finding(
                "LoRA on lm_head is refused: the loss reads the head's own weight",
                (at.label("lm_head"),),
                ("log-probabilities are computed from lm_head.weight, past any adapter",),
                "leave lm_head out of the targets",
            )


RULE = Rule(
    name="head-adapted-in-preference-training",
    severity="error",
    consequence="init",
    consumers=("trl>=1.15",),
    sources=(
        (
            "trl 1.15.0 and 1.16.0 trainer/dpo_trainer.py, grpo_trainer.py, kto_trainer.py, "
            "rloo_trainer.py: Applying a PEFT adapter to `lm_head` is not supported; 1.9.2 only "
            "with Liger"
        ),
    ),
    check=_check,
)
