"""A quantised base under an engine that shards parameters."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.precision import (
    LOADERS,
    SHARDED,
    Base,
    by_another_library,
    dtype_beside,
    processes,
    quantised,
    refused_by_llamafactory,
    severity_of,
    sharded_by_fsdp,
    storage_label,
    storage_of,
)
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule

_BITS = ("nf4", "fp4")


@rule("error", "init", consumers=("torch", "axolotl", "llamafactory", "trl"), reads=SHARDED)
def quantised_base_under_fsdp(run: LintContext) -> Iterator[Finding]:
    """FSDP cannot flatten the weights of a quantised base together with the others."""
    shards = sharded_by_fsdp(run)
    if shards is None:
        return
    found = _stored_for_fsdp(run) or _by_another_library(run) or _loaded_for_fsdp(run, shards)
    if found is None:
        return
    what, place, note, mended = found
    yield Finding(
        f"{what} cannot be sharded by FSDP",
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


def _by_another_library(run: LintContext) -> Fault | None:
    found = by_another_library(run)
    return (*found, "use bitsandbytes in 4 bits, or DDP") if found is not None else None


def _loaded_for_fsdp(run: LintContext, shards: Place) -> Fault | None:
    base = quantised(run)
    if base is None or base.document.kind == "simpletuner":
        return None
    if base.document.kind == "axolotl":
        return _in_fp16_by_axolotl(run, base) or _unknown_to_axolotl(base, shards)
    if base.form not in _BITS:
        note = "FSDP flattens floating point weights of one dtype; 8-bit weights are int8"
        return f"an {base.form} base", base.place, note, "use 4 bits, or DDP"
    return _of_another_dtype(run, base)


def _in_fp16_by_axolotl(run: LintContext, base: Base) -> Fault | None:
    """The fault of qlora in fp16: Axolotl stores the 4-bit weights in bf16 in every case."""
    names = ("fsdp_version", "fsdp_config.fsdp_version")
    is_second = any(base.document.value(name) == 2 for name in names)
    is_fp16 = run.value("precision.compute") == "fp16"
    if not is_fp16 or is_second or base.form not in _BITS:
        return None
    note = "Axolotl holds packed weights in bf16, and loads the rest in fp16"
    return "a 4-bit base held in bf16", base.place, note, "write bf16: true in place of fp16"


def _unknown_to_axolotl(base: Base, shards: Place) -> Fault | None:
    """The fault if Axolotl's own file does not set FSDP: Axolotl then converts norms to fp32."""
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


def _of_another_dtype(run: LintContext, base: Base) -> Fault | None:
    mixed = run.value("precision.compute")
    if base.document.kind == "llamafactory":
        storage = run.value("quantization.compute")
    else:
        storage = storage_of(run, base)
    launched = run.said("accelerate", "mixed_precision")
    if launched is not None and launched.value in ("bf16", "fp16") and not _is_said_by(run):
        mixed = launched.value
    rest = _rest(base, storage) or mixed
    if storage is None or storage == rest or (rest is None and storage != "uint8"):
        return None
    note = f"packed weights are held in {storage}" + (f", the rest in {rest}" if rest else "")
    mended = "give bnb_4bit_quant_storage, the dtype of the weights and mixed precision one dtype"
    return f"a 4-bit base held in {storage}", base.place, note, mended


def _is_said_by(run: LintContext) -> bool:
    """Whether the trainer sets a precision, which replaces the launcher's.

    transformers 4.40.2 to 5.23.0 training_args.py `__post_init__`: ACCELERATE_MIXED_PRECISION.
    """
    both = (run.said("trainer", key) for key in ("bf16", "fp16"))
    return any(each is not None and each.value is True for each in both)


def _rest(base: Base, storage: str | None) -> str | None:
    """The dtype that the file sets for the weights beside the packed ones, if it differs."""
    said = dtype_beside(base)
    return said[0] if said is not None and said[0] != storage else None


def _stored_for_fsdp(run: LintContext) -> Fault | None:
    found = refused_by_llamafactory(run)
    if found is None:
        return None
    note = "LLaMA-Factory: DeepSpeed ZeRO-3 or FSDP is incompatible with PTQ-quantized models"
    return f"a base stored in {found[0]}", found[1], note, "use DDP or ZeRO stage 2"


_OF_MAKERS: Final = re.compile(r"(?:^|/)(?:llava/train/train|src/train/train_sft)\w*\.py$")
_MAPPED = "the script lays it on its own device: stage 3 is not compatible with a device_map"


@rule(
    "error",
    "step",
    consumers=("deepspeed", "transformers", "llamafactory"),
    reads=("deepspeed:zero_optimization.stage",),
)
def quantised_base_under_zero_3(run: LintContext) -> Iterator[Finding]:
    """ZeRO-3 cannot gather the packed weights of a quantised base."""
    stage = run.slot("zero.stage")
    if stage is None or stage.value != 3:
        return
    where = run.place(stage)
    found = _stored_for_zero(run) or by_another_library(run) or _loaded_for_zero(run)
    if found is None or where is None:
        return
    what, place, note = found
    is_mapped = _is_mapped(run, place)
    yield Finding(
        f"{what} cannot be sharded by ZeRO stage 3",
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


def _loaded_for_zero(run: LintContext) -> tuple[str, Place, str] | None:
    base = quantised(run)
    if base is None or base.document.kind == "simpletuner":
        return None
    if base.form not in _BITS:
        note = "8-bit weights are int8, and a group that ZeRO-3 gathers has to be of one dtype"
        return f"an {base.form} base", base.place, note
    return _packed(run, base)


def _packed(run: LintContext, base: Base) -> tuple[str, Place, str] | None:
    """The fault of 4-bit weights, stored in uint8 unless the file sets another dtype.

    LLaMA-Factory and Axolotl set one.
    """
    if base.document.kind == "llamafactory":
        return None
    storage = storage_of(run, base)
    compute = run.value("precision.compute")
    if storage == compute or (storage != "uint8" and compute is None):
        return None
    against = f", and the rest is {compute}" if compute else ""
    note = f"4-bit weights are held in {storage}{against}: a gathered group has to be of one dtype"
    return f"a 4-bit base held in {storage}", base.place, note


def _stored_for_zero(run: LintContext) -> tuple[str, Place, str] | None:
    """The fault in LLaMA-Factory, which refuses every base that is stored quantised."""
    found = refused_by_llamafactory(run)
    if found is None:
        return None
    return (
        f"a base stored in {found[0]}",
        found[1],
        "LLaMA-Factory: DeepSpeed ZeRO-3 or FSDP is incompatible with PTQ-quantized models",
    )


def _is_mapped(run: LintContext, place: Place) -> bool:
    """Whether flags of a maker's script make it pass a device_map to `from_pretrained`.

    haotian-liu/LLaVA c121f04 llava/train/train.py and 2U1/Qwen-VL-Series-Finetune 93fef86
    src/train/train_sft.py `train`: for `bits`; lm-sys/FastChat 0e6d3e4
    fastchat/train/train_lora.py, QwenLM/Qwen-VL aa00ed0 finetune.py: for `q_lora`, if there are
    several processes.
    """
    if place.document.format != "shell":
        return False
    own = run.started.get(place.document.name, {})
    is_theirs = any(_OF_MAKERS.search(script) for script in own)
    by_bits = place.path == "bits" and place.document.get("lora_enable") is not None and is_theirs
    return by_bits or (place.path == "q_lora" and run.value("parallel.world", 2) != 1)


def _when(run: LintContext, place: Place) -> Consequence:
    """When it fails: at loading, if zero.Init makes the base on every device before packing.

    The unpacked base may not fit there.
    """
    flag = run.said("accelerate", "deepspeed_config.zero3_init_flag")
    if (flag is not None and flag.value is True) or place.document.kind == "llamafactory":
        return "load"
    return "step"


_KEYS: Final = ("device_map", "model_init_kwargs.device_map", "model_kwargs.device_map")
_SPREADS: Final = ("auto", "balanced", "balanced_low_0", "sequential")


@rule(
    "error",
    "init",
    consumers=("accelerate",),
    reads=keys("model|trainer|axolotl", *_KEYS),
    hardware=True,
)
def device_map_in_distributed_run(run: LintContext) -> Iterator[Finding]:
    """A process of several places the model on devices that belong to other processes."""
    world = processes(run)
    if run.value("zero.stage") == 3:  # refused for another reason, which is another rule's
        return
    for document in run.of(*LOADERS, "axolotl", "llamafactory"):
        place = None if document.is_view else _mapped(document)
        if place is None or (world is not None and world < 2):
            continue
        what = _fault(run, place)
        if what is None or (world is None and not _has_several(run)):
            continue
        yield Finding(
            what,
            (place.key_label("the same in every process"),),
            (f"{world} processes are started, each of which loads the model",) if world else (),
            "leave it out, or give each process its own device",
            certain=world is not None,
            severity="note" if _is_asked(document) else None,
        )


_ASKS: Final = re.compile(
    r"(?im)^\s*(?:el)?if\b[^\n]*(?:distributed|world_size|local_rank|num_processes|\bddp\b)"
    r"|\bif\s+\w*(?:distributed|world_size|local_rank|ddp)\w*[^\n]*\belse\b"
)


def _is_asked(document: Document) -> bool:
    """Whether a script checks how it is started, and so may use another device_map."""
    return document.format == "python" and _ASKS.search(document.text) is not None


def _mapped(document: Document) -> Place | None:
    return next((place for key in _KEYS if (place := document.get(key)) is not None), None)


def _fault(run: LintContext, place: Place) -> str | None:
    if place.value in _SPREADS:
        return f"device_map {place.value} in a run of several processes"
    if isinstance(place.value, dict) and len(place.value) > 1:
        return "device_map lays parts of the model on devices by hand, in several processes"
    if _is_one_device(place.value) and quantised(run) is not None:
        return "every process puts the quantised base on the same device"
    return None


def _is_one_device(value: Any) -> bool:
    """Whether a device_map names one device: `{"": 0}`, `{"": "cuda:0"}` or `cuda:0`."""
    if isinstance(value, dict) and list(value) == [""]:
        value = value[""]
    return is_whole(value) or (isinstance(value, str) and value.startswith("cuda:"))


def _has_several(run: LintContext) -> bool:
    cluster = run.environment.cluster
    return cluster is not None and cluster.device_count > 1
