"""adapter_config.json: PEFT's LoraConfig."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, File, Json, constant, derived, fixed, named, same
from tunec.targets.huggingface.packages import PEFT, schema_of
from tunec.targets.rows import has_adapter, names_under

_SOURCE = "peft 0.10.0 to 0.21.2 tuners/lora/config.py `LoraConfig`"

_TASKS = {
    "causal-lm": "CAUSAL_LM",
    "vision-language": "CAUSAL_LM",
    "encoder-decoder": "SEQ_2_SEQ_LM",
    "encoder": "FEATURE_EXTRACTION",
    "sequence-classifier": "SEQ_CLS",
    "token-classifier": "TOKEN_CLS",
}
"""PEFT's task for each kind of model: peft 0.10.0 to 0.21.2 utils/peft_types.py `TaskType`."""
_OF_NO_TASK: Final = frozenset({"whisper"})
"""Families whose class takes no `input_ids`, which PEFT's classes for tasks pass anyway (peft
0.21.2 peft_model.py, `PeftModelForSeq2SeqLM.forward`); without a task they train."""


def task_of(plan: Plan) -> str | None:
    """PEFT's name for the task of a plan's model; None if no PEFT class for a task fits."""
    return None if plan.model.family in _OF_NO_TASK else _TASKS.get(plan.model.kind)


def whole(value: float) -> float:
    """An integral number as an int, which PEFT and TRL annotate as the type of alpha."""
    return int(value) if value == int(value) else value


def _key(key: str, slot: str, default: Any) -> Entry:
    return same(key, f"adapter.{slot}", _SOURCE, default=default, package=PEFT)


def _read_also(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"adapter.also_train": tuple(found["modules_to_save"] or ())}


_ENTRIES = (
    named("peft_type", "adapter.kind", {"lora": "LORA"}, _SOURCE, package=PEFT),
    derived("task_type", task_of, _SOURCE, package=PEFT),
    same(
        "base_model_name_or_path",
        "model.path",
        "peft 0.10.0 to 0.21.2 config.py `PeftConfig`",
        package=PEFT,
    ),
    constant("inference_mode", False, "peft config.py `PeftConfig`", package=PEFT),
    _key("r", "rank", 8),
    Entry(
        ("lora_alpha",),
        ("adapter.alpha",),
        lambda plan: {"lora_alpha": whole(plan.adapter.alpha)},
        lambda found: {"adapter.alpha": found["lora_alpha"]},
        _SOURCE,
        absent=((ALWAYS, {"adapter.alpha": 8.0}),),
        package=PEFT,
    ),
    _key("lora_dropout", "dropout", 0.0),
    same("target_modules", "adapter.targets", _SOURCE, package=PEFT),
    Entry(
        ("target_parameters",),
        ("adapter.parameters",),
        names_under("target_parameters", "adapter.parameters"),
        lambda found: {"adapter.parameters": tuple(found["target_parameters"] or ())},
        "peft 0.17.0 to 0.21.2 tuners/lora/config.py `LoraConfig`",
        since="0.17",
        absent=((ALWAYS, {"adapter.parameters": ()}),),
        package=PEFT,
    ),
    fixed("adapter.parameters", (), f"{_SOURCE}, from 0.17", until="0.17", package=PEFT),
    _key("bias", "bias", "none"),
    _key("use_rslora", "rslora", False),
    _key("use_dora", "dora", False),
    Entry(
        ("modules_to_save",),
        ("adapter.also_train",),
        names_under("modules_to_save", "adapter.also_train"),
        _read_also,
        _SOURCE,
        absent=((ALWAYS, {"adapter.also_train": ()}),),
        package=PEFT,
    ),
)


_OF_ONETRAINER: Final = "training_method"
"""Nerogar/OneTrainer modules/util/config/TrainConfig.py: beside a `peft_type` of its own."""


def _is_adapter(document: Json) -> bool:
    is_mapping = isinstance(document, dict)
    return is_mapping and "peft_type" in document and _OF_ONETRAINER not in document


ADAPTER_CONFIG = File(
    name="adapter_config.json",
    format="json",
    entries=_ENTRIES,
    recognise=_is_adapter,
    schema=schema_of("lora_config", PEFT, _ENTRIES),
    when=has_adapter,
)
