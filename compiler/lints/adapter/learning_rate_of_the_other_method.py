"""A learning rate for adapters moves the whole model, or one for the whole model moves adapters."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.adapter.lora import Lora, loras, number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_MOST_FULL: Final = 1.5e-4
_LEAST_LORA: Final = 5e-6
_LARGE: Final = 1_000_000_000
_BEGUN: Final = ("pretraining_dataset", "pretraining")
_ADAMS: Final = ("adamw", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "adam")


def _check(run: Run) -> Iterator[Finding]:
    rate, kind = run.observed("optimizer.learning_rate"), run.slot("adapter.kind")
    at = run.place(rate)
    value = number(rate.value) if rate is not None else None
    if at is None or value is None or kind is None or run.value("optimizer.name") not in _ADAMS:
        return
    is_full = kind.value == "none" and not list(loras(run)) and not _is_otherwise(run)
    if is_full and value > _MOST_FULL and _is_large(run):
        yield Finding(
            f"learning rate {value:g} for a full fine-tune of {_billions(run)} billion parameters",
            (at.label("usual for adapters"),),
            ("full fine-tunes of this size use 5e-6 to 5e-5: a tenth of what LoRA uses",),
            "write 1e-5 or 2e-5",
        )
    elif kind.value == "lora" and 0 < value < _LEAST_LORA and not run.of("dpo", "grpo"):
        if any(lora.document.value("rl") or _is_preference(lora) for lora in loras(run)):
            return
        yield Finding(
            f"learning rate {value:g} for LoRA",
            (at.label("usual for whole models"),),
            ("LoRA uses about ten times the rate of a full fine-tune: 1e-4 to 3e-4 with Adam",),
            "write 1e-4",
        )


def _is_otherwise(run: Run) -> bool:
    """What is trained from its beginning, or by a script that puts in adapters by itself."""
    kinds = ("axolotl", "trainer")
    said = (each for key in _BEGUN for kind in kinds for each in run.each(kind, key))
    is_begun = any(each.value for each in said)
    return is_begun or any(document.get("lora_modules") for document in run.of("hf"))


def _is_preference(lora: Lora) -> bool:
    stage = lora.document.value("stage", "sft")
    return stage not in ("sft", "pt")


def _is_large(run: Run) -> bool:
    return run.model is not None and run.model.architecture.parameters >= _LARGE


def _billions(run: Run) -> str:
    return f"{run.model.architecture.parameters / 1e9:.1f}" if run.model is not None else ""


RULE = Rule(
    name="learning-rate-of-the-other-method",
    severity="warning",
    consequence="silent",
    consumers=("peft", "transformers"),
    sources=(
        (
            "Thinking Machines Lab, LoRA Without Regret (2025): the best rate of LoRA is about ten "
            "times that of full fine-tuning"
        ),
        (
            "arXiv 2106.09685 (LoRA) appendix D: 2e-4; arXiv 2305.14314 (QLoRA) table 9: 1e-4 to "
            "2e-4; meta-llama/llama recipes full fine-tuning 1e-5"
        ),
    ),
    check=_check,
)
