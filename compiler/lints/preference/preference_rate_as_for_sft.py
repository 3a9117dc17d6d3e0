"""A preference method runs at a learning rate of supervised training."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.preference.asked import preferences, real
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_MOST_FULL: Final = 1e-5
_MOST_LORA: Final = 1e-4


def _check(run: Run) -> Iterator[Finding]:
    for document, name in preferences(run):
        if name not in ("dpo", "kto", "orpo", "simpo", "ppo", "grpo"):
            continue
        at = document.get("learning_rate")
        rate = real(at.value) if at is not None else None
        kind = run.value("adapter.kind")
        limit = _MOST_LORA if kind == "lora" else _MOST_FULL
        if at is None or rate is None or kind is None or rate <= limit:
            continue
        yield Finding(
            f"learning rate {rate:g} for {name.upper()}",
            (at.label("usual for supervised training"),),
            (
                "DPO's authors and TRL use 5e-7 to 5e-6 on whole models, ten times that on LoRA",
                "too high a rate lowers both log-probabilities, and answers fall apart",
            ),
            f"write {5e-7 if limit == _MOST_FULL else 5e-6:g}",
        )


RULE = Rule(
    name="preference-rate-as-for-sft",
    severity="warning",
    consequence="silent",
    consumers=("trl",),
    sources=(
        (
            "arXiv 2305.18290 (DPO) appendix B: 1e-6; trl 0.12.2 to 1.16.0 dpo_config.py, "
            "grpo_config.py: learning_rate 1e-6 by default; arXiv 2310.16944 (Zephyr): 5e-7"
        ),
    ),
    check=_check,
)
