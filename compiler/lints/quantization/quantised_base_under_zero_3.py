"""A quantised base whose packed weights ZeRO-3 cannot gather."""

from collections.abc import Iterator

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.quantization.base import (
    Base,
    by_another_library,
    quantised,
    refused_by_llamafactory,
    severity_of,
    storage_label,
    storage_of,
)
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_BITS = ("nf4", "fp4")
_MAPPED = "the script lays it on its own device: stage 3 is not compatible with a device_map"


def _check(run: Run) -> Iterator[Finding]:
    stage = run.slot("zero.stage")
    if stage is None or stage.value != 3:
        return
    where = run.place(stage)
    found = _stored_by_name(run) or by_another_library(run) or _loaded(run)
    if found is None or where is None:
        return
    what, place, note = found
    is_mapped = _is_mapped(run, place)
    yield Finding(
        f"{what} under ZeRO stage 3",
        (
            place.label("packed in integers"),
            *storage_label(place),
            where.label("gathers parameters", primary=False),
        ),
        (_MAPPED if is_mapped else note,),
        "use stage 2, or 4 bits with bnb_4bit_quant_storage in the dtype of the run",
        consequence="load" if is_mapped else _when(run, place),
        severity=severity_of(run, place),
    )


def _loaded(run: Run) -> tuple[str, Place, str] | None:
    base = quantised(run)
    if base is None or base.document.kind == "simpletuner":
        return None
    if base.form not in _BITS:
        note = "8-bit weights are int8, and a group that ZeRO-3 gathers has to be of one dtype"
        return f"an {base.form} base", base.place, note
    return _packed(run, base)


def _packed(run: Run, base: Base) -> tuple[str, Place, str] | None:
    """4 bits: held in uint8 unless the file says otherwise, as LLaMA-Factory and Axolotl do."""
    if base.document.kind == "llamafactory":
        return None
    storage = storage_of(run, base)
    compute = run.value("precision.compute")
    if storage == compute or (storage != "uint8" and compute is None):
        return None
    against = f", and the rest is {compute}" if compute else ""
    note = f"4-bit weights are held in {storage}{against}: a gathered group has to be of one dtype"
    return f"a 4-bit base held in {storage}", base.place, note


def _stored_by_name(run: Run) -> tuple[str, Place, str] | None:
    """LLaMA-Factory refuses every base that is stored quantised."""
    found = refused_by_llamafactory(run)
    if found is None:
        return None
    return (
        f"a base stored in {found[0]}",
        found[1],
        "LLaMA-Factory: DeepSpeed ZeRO-3 or FSDP is incompatible with PTQ-quantized models",
    )


def _is_mapped(run: Run, place: Place) -> bool:
    """Whether flags of a maker's script ask for it, which gives `from_pretrained` a device_map.

    haotian-liu/LLaVA c121f04 llava/train/train.py and 2U1/Qwen-VL-Series-Finetune 93fef86
    src/train/train_sft.py `train`: of `bits`; lm-sys/FastChat 0e6d3e4 fastchat/train/train_lora.py,
    QwenLM/Qwen-VL aa00ed0 finetune.py: of `q_lora`, where there are several processes.
    """
    if place.document.format != "shell":
        return False
    by_bits = place.path == "bits" and place.document.get("lora_enable") is not None
    return by_bits or (place.path == "q_lora" and run.value("parallel.world", 2) != 1)


def _when(run: Run, place: Place) -> Consequence:
    """With zero.Init the base is made on every device before it is packed: that may not fit."""
    flag = run.said("accelerate", "deepspeed_config.zero3_init_flag")
    if (flag is not None and flag.value is True) or place.document.kind == "llamafactory":
        return "load"
    return "step"


RULE = Rule(
    name="quantised-base-under-zero-3",
    severity="error",
    consequence="step",
    consumers=("deepspeed", "transformers", "llamafactory"),
    sources=(
        (
            "huggingface/transformers#26412, axolotl-ai-cloud/axolotl#207: expected there to be "
            "only one unique element in Init._convert_to_deepspeed_param.all_gather_coalesced"
        ),
        (
            "transformers 4.40.2 to 5.23.0 modeling_utils.py `from_pretrained`: DeepSpeed Zero-3 "
            "is not compatible with passing a `device_map`; haotian-liu/LLaVA#1692"
        ),
        "huggingface/transformers#24395: out of memory while it is loaded under zero3_init",
        "deepspeed 0.19.8 runtime/zero/partition_parameters.py `get_only_unique_item`",
        "trl 0.26 to 1.16.0 trainer/model_config.py `bnb_4bit_quant_storage`: absent, uint8",
        "llamafactory 0.9.1 to 0.9.5 model/model_utils/quantization.py `configure_quantization`",
        "axolotl 0.8.1 to 0.19.0 `_set_quantization_config`: bnb_4bit_quant_storage is bfloat16",
    ),
    check=_check,
)
