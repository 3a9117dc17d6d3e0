"""LoRA's targets are left to PEFT, which has none for this kind of model."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.adapter.lora import Lora, is_minicpm, loras
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_EVER: Final = frozenset(
    {
        *("t5", "mt5", "bart", "gpt2", "bloom", "blip-2", "opt", "gptj", "gpt_neox", "gpt_neo"),
        *("bert", "roberta", "xlm-roberta", "electra", "deberta-v2", "deberta", "layoutlm"),
        *("llama", "chatglm", "gpt_bigcode", "mpt", "RefinedWeb", "RefinedWebModel", "falcon"),
        *("btlm", "codegen", "mistral", "mixtral", "stablelm", "phi", "gemma"),
    }
)
"""peft 0.10.0 to 0.21.2 utils/constants.py
`TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`."""
_LATER: Final[Mapping[str, str]] = {
    "qwen2": "peft>=0.12",
    "gemma2": "peft>=0.13",
    **dict.fromkeys(("llama4", "gemma3_text", "qwen3"), "peft>=0.16"),
    **dict.fromkeys(("rwkv", "rwkv7"), "peft>=0.18"),
    "gemma4": "peft>=0.19",
    "nemotron_h": "peft>=0.20",
}
"""The same, by the release that brought each."""
_NAMED: Final[Mapping[str, str]] = {
    r"/qwen2-vl-": "qwen2_vl",
    r"/qwen2\.5-vl-": "qwen2_5_vl",
    r"/qwen3-vl-": "qwen3_vl",
    r"/qwen3-[\d.]+b-a\d+b": "qwen3_moe",
    r"/phi-3(\.5)?-(mini|small|medium)|/phi-4$": "phi3",
    r"/gpt-oss-": "gpt_oss",
    r"/deepseek-v3|/deepseek-r1$": "deepseek_v3",
    r"/gemma-2-\d+b": "gemma2",
    r"/qwen3-[\d.]+b$": "qwen3",
    r"/qwen2(\.5)?-[\d.]+b": "qwen2",
}
"""`model_type` by repository name, for models that are not in the catalogue."""


def _check(run: Run) -> Iterator[Finding]:
    for lora in loras(run):
        kind = _model_type(run, lora) if _is_left(lora) else None
        at = lora.start()
        if kind is None or at is None or kind in _EVER or _has(run, kind):
            continue
        yield Finding(
            f"no targets for LoRA, and PEFT has none of its own for {kind}",
            (at.label(f"write {lora.key('target_modules')} beside it"),),
            ("ValueError: please specify `target_modules` in `peft_config`",),
            f"write {lora.key('target_modules')}: all-linear",
            severity=None if lora.document.get(lora.key("target_modules")) else "warning",
        )


def _is_left(lora: Lora) -> bool:
    key = lora.key("target_modules")
    has_other = lora.place("target_parameters") or lora.document.get("lora_target_parameters")
    is_own = lora.document.kind in (*TRL, "peft") and key not in lora.document.unknown
    return is_own and not has_other and lora.targets is None and not is_minicpm(lora.document)


def _model_type(run: Run, lora: Lora) -> str | None:
    if run.model is not None and run.model.card is not None:
        found = run.model.card.config.get("model_type")
        return found if isinstance(found, str) else None
    for key in ("model_name_or_path", "base_model_name_or_path"):
        said = lora.document.value(key)
        name = f"/{str(said or '').lower().rpartition('/')[2]}"
        for pattern, kind in _NAMED.items():
            if re.search(pattern, name):
                return kind
    return None


def _has(run: Run, kind: str) -> bool:
    """Whether the release may have targets of its own for a kind of model."""
    since = _LATER.get(kind)
    return since is not None and run.runs(since) is not False


RULE = Rule(
    name="lora-targets-left-out",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 utils/constants.py "
            "`TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`; tuners/tuners_utils.py "
            "`_prepare_adapter_config`: Please specify `target_modules` in `peft_config`"
        ),
        "huggingface/peft#2128; trl 0.8.6 to 1.16.0 trainer/utils.py `get_peft_config`",
    ),
    check=_check,
)
