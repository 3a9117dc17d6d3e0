"""MiniCPM-V's script is to train the language model and LoRA in it."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import is_minicpm, is_true
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.documents:
        if document.is_view or not is_minicpm(document):
            continue
        lora, llm = document.get("use_lora"), document.get("tune_llm")
        if lora is None or not is_true(lora.value):
            continue
        if llm is not None and not is_true(llm.value):
            continue
        yield Finding(
            "use_lora cannot stand beside tune_llm, which is true"
            f"{'' if llm is not None else ' where nobody says it'}",
            (
                lora.label("refused") if llm is None else llm.label("refused"),
                *([lora.label("", primary=False)] if llm is not None else []),
            ),
            ("The model cannot simultaneously adjust LLM parameters and apply LoRA",),
            "write tune_llm false",
        )


RULE = Rule(
    name="language-model-tuned-beside-lora",
    severity="error",
    consequence="load",
    consumers=("minicpm-v",),
    sources=(
        (
            "OpenBMB/MiniCPM-V 0dbb566 finetune/finetune.py `train`: if training_args.use_lora "
            "and training_args.tune_llm: raise ValueError; tune_llm is True by default"
        ),
    ),
    check=_check,
)
