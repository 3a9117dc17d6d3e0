"""A stored quantised checkpoint whose kernels do not train as the file asks."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.adapter.lora import loras
from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.preference.asked import is_started_by_trl
from tunec.compiler.lints.quantization.base import stored_form
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TRAINERS: Final = (*TRL, "llamafactory", "axolotl")


def _check(run: Run) -> Iterator[Finding]:
    yield from _exllama(run)
    found = stored_form(run)
    if found is not None and found[0] == "awq":
        yield from _in_bf16(run)


def _exllama(run: Run) -> Iterator[Finding]:
    """ExLlama's product has no gradient, and it is on unless it is turned off."""
    for document in configs(run):
        at, off = where(document, "gptq"), document.get("gptq_disable_exllama")
        if at is None or (off is not None and off.value is True):
            continue
        yield Finding(
            "a GPTQ base is trained with ExLlama's kernel on",
            (
                at.label("no gradient goes through it"),
                *([off.label("", primary=False)] if off else []),
            ),
            ("the checkpoint's own configuration decides where nothing is said, and has it on",),
            "write gptq_disable_exllama: true",
        )


def _in_bf16(run: Run) -> Iterator[Finding]:
    found = stored_form(run)
    if found is None or found[1].document.kind not in _TRAINERS or not _is_adapted(run):
        return
    name = found[1]
    if name.document.format == "shell" and not is_started_by_trl(run, name.document):
        return
    half = name.document.get("bf16") or name.document.get("pure_bf16")
    if half is None or half.value is not True:
        return
    yield Finding(
        "an AWQ base is trained in bf16",
        (half.label("its kernels compute in fp16"), name.label("", primary=False)),
        ("with Triton's kernels: Both operands must be same dtype. Got fp16 and bf16",),
        "train in fp16, or quantise a base of full precision when it is loaded",
    )


def _is_adapted(run: Run) -> bool:
    return any(True for _ in loras(run)) or run.value("adapter.kind", "none") != "none"


RULE = Rule(
    name="stored-form-not-for-training",
    severity="warning",
    consequence="step",
    consumers=("transformers", "axolotl", "llamafactory", "trl"),
    sources=(
        (
            "axolotl 0.8.1 to 0.19.0 loaders/model.py: gptq_disable_exllama goes to the "
            "checkpoint's quantization_config where it is given; axolotl-ai-cloud/axolotl#599"
        ),
        (
            "transformers 4.40.2 docs/source/en/quantization/gptq.md: disable the ExLlama kernel "
            "for fine-tuning; yuhuixu1993/qa-lora#10: QuantLinear with exllama backend not "
            "support trainable mode yet; ModelCloud/GPTQModel#1435"
        ),
        "QwenLM/Qwen3-VL#1222, casper-hansen/AutoAWQ#420, vllm-project/vllm#1823",
    ),
    check=_check,
)
