"""LLaMA-Factory is to train the projector, and LoRA is put elsewhere."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SWITCH: Final = "freeze_multi_modal_projector"
_OF_LANGUAGE: Final = frozenset(
    {
        *("all", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        *("qkv_proj", "gate_up_proj", "query_key_value", "c_attn", "W_pack", "wqkv"),
    }
)
"""Names of layers that are no part of any projector's name."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        at, method = document.get(_SWITCH), document.get("finetuning_type")
        if at is None or at.value is not False or not _is_lora(document):
            continue
        if document.value("freeze_vision_tower") is False or document.get("additional_target"):
            continue
        targets = _words(document.value("lora_target") or "all")
        if not targets or not targets <= _OF_LANGUAGE:
            continue
        yield Finding(
            f"{_SWITCH} is false, and LoRA leaves the projector as it is",
            (at.label("not trained"), *([method.label("", primary=False)] if method else [])),
            (
                (
                    "the switch frees it for full and freeze tuning; LoRA's own list of linear "
                    "layers, `all`, leaves projectors out"
                ),
            ),
            "write additional_target: multi_modal_projector (merger for Qwen-VL), or remove it",
        )


def _is_lora(document: Document) -> bool:
    """LoRA is what it does unasked."""
    return document.value("finetuning_type") in (None, "lora") and not document.unknown & {
        "finetuning_type",
        "lora_target",
        "additional_target",
    }


def _words(said: Any) -> frozenset[str]:
    if isinstance(said, str):
        said = said.split(",")
    return frozenset(str(each).strip() for each in said) if isinstance(said, list) else frozenset()


RULE = Rule(
    name="projector-not-adapted",
    severity="warning",
    consequence="silent",
    consumers=("llamafactory>=0.9.2",),
    sources=(
        (
            "llamafactory 0.9.3 and 0.9.5 model/model_utils/misc.py `find_all_linear_modules`: "
            "projector_keys are forbidden; visual.py `patch_target_modules`: of the rest only "
            "names that hold a target; adapter.py `_setup_freeze_tuning` alone adds projector_keys"
        ),
        "hiyouga/LlamaFactory#6754: with LoRA, additional_target: merger",
    ),
    check=_check,
)
