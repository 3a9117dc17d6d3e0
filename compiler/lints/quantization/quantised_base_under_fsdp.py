"""A quantised base whose weights FSDP cannot flatten with the rest."""

from collections.abc import Iterator

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.quantization.base import (
    Base,
    by_another_library,
    dtype_of,
    quantised,
    refused_by_llamafactory,
    severity_of,
    sharded_by_fsdp,
    storage_label,
    storage_of,
)
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BITS = ("nf4", "fp4")


def _check(run: Run) -> Iterator[Finding]:
    shards = sharded_by_fsdp(run)
    if shards is None:
        return
    found = _stored_by_name(run) or _by_another_library(run) or _loaded(run, shards)
    if found is None:
        return
    what, place, note, mended = found
    yield Finding(
        f"{what} under FSDP",
        (
            place.label("quantised"),
            *storage_label(place),
            shards.key_label("shards it", primary=False),
        ),
        (note,),
        mended,
        consequence="load" if place.document.kind == "llamafactory" else None,
        severity=severity_of(run, place),
    )


Fault = tuple[str, Place, str, str]


def _by_another_library(run: Run) -> Fault | None:
    found = by_another_library(run)
    return (*found, "use bitsandbytes in 4 bits, or DDP") if found is not None else None


def _loaded(run: Run, shards: Place) -> Fault | None:
    base = quantised(run)
    if base is None or base.document.kind == "simpletuner":
        return None
    if base.document.kind == "axolotl":
        return _in_fp16_by_axolotl(run, base) or _unknown_to_axolotl(base, shards)
    if base.form not in _BITS:
        note = "FSDP flattens floating point weights of one dtype; 8-bit weights are int8"
        return f"an {base.form} base", base.place, note, "use 4 bits, or DDP"
    return _of_another_dtype(run, base)


def _in_fp16_by_axolotl(run: Run, base: Base) -> Fault | None:
    """Axolotl holds the 4 bits of qlora in bf16, whatever the dtype of the rest."""
    names = ("fsdp_version", "fsdp_config.fsdp_version")
    is_second = any(base.document.value(name) == 2 for name in names)
    is_fp16 = run.value("precision.compute") == "fp16"
    if not is_fp16 or is_second or base.form not in _BITS:
        return None
    note = "Axolotl holds packed weights in bf16, and loads the rest in fp16"
    return "a 4-bit base held in bf16", base.place, note, "write bf16: true in place of fp16"


def _unknown_to_axolotl(base: Base, shards: Place) -> Fault | None:
    """Axolotl turns norms to fp32 unless its own file says that there is FSDP."""
    if base.document.value("fsdp") or base.document.value("fsdp_config"):
        names = ("fsdp_version", "fsdp_config.fsdp_version")
        is_second = any(base.document.value(name) == 2 for name in names)
        if base.form in _BITS or is_second:
            return None
        note = "FSDP flattens floating point weights of one dtype; 8-bit weights are int8"
        return f"an {base.form} base", base.place, note, "use adapter: qlora with load_in_4bit"
    note = "Axolotl does not see it: it turns the norms to fp32, and flattening finds two dtypes"
    return (
        f"a quantised base with FSDP turned on in {shards.document.name}",
        base.place,
        note,
        "say `fsdp_config` in the file of Axolotl, which starts FSDP itself",
    )


def _of_another_dtype(run: Run, base: Base) -> Fault | None:
    mixed = run.value("precision.compute")
    if base.document.kind == "llamafactory":
        storage = run.value("quantization.compute")
    else:
        storage = storage_of(run, base)
    launched = run.said("accelerate", "mixed_precision")
    if launched is not None and launched.value in ("bf16", "fp16"):
        mixed = launched.value
    rest = _rest(base, storage) or mixed
    if storage is None or storage == rest or (rest is None and storage != "uint8"):
        return None
    note = f"packed weights are held in {storage}" + (f", the rest in {rest}" if rest else "")
    mended = "give bnb_4bit_quant_storage, the dtype of the weights and mixed precision one dtype"
    return f"a 4-bit base held in {storage}", base.place, note, mended


def _rest(base: Base, storage: str | None) -> str | None:
    """What the file gives the weights beside the packed ones, where that is another dtype."""
    said = dtype_of(base)
    return said[0] if said is not None and said[0] != storage else None


def _stored_by_name(run: Run) -> Fault | None:
    found = refused_by_llamafactory(run)
    if found is None:
        return None
    note = "LLaMA-Factory: DeepSpeed ZeRO-3 or FSDP is incompatible with PTQ-quantized models"
    return f"a base stored in {found[0]}", found[1], note, "use DDP or ZeRO stage 2"


RULE = Rule(
    name="quantised-base-under-fsdp",
    severity="error",
    consequence="init",
    consumers=("torch", "axolotl", "llamafactory", "trl"),
    sources=(
        (
            "torch 2.13.0 distributed/fsdp/_flat_param.py `FlatParamHandle._validate_tensors_to_"
            "flatten`: Must flatten tensors with uniform dtype"
        ),
        (
            "axolotl 0.19.0 loaders/model.py `is_fsdp_enabled`, `_prepare_model_for_quantization`, "
            "`_set_quantization_config`: bnb_4bit_quant_storage is bfloat16; "
            "axolotl-ai-cloud/axolotl#1482, #1494"
        ),
        (
            "llamafactory 0.9.1 to 0.9.5 model/model_utils/quantization.py: Only 4-bit quantized "
            "model can use fsdp+qlora; hiyouga/LlamaFactory#3853"
        ),
        (
            "trl 0.26 to 1.16.0 trainer/model_config.py `bnb_4bit_quant_storage`: absent, uint8; "
            "huggingface/trl#1723"
        ),
    ),
    check=_check,
)
