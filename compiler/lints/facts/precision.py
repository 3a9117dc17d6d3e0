"""Where a run requests a precision or a quantised base, and devices below a capability."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Label, Severity
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.facts.diffusion import configs, said
from tunec.compiler.lints.rule import keys
from tunec.schemas.models.published_form import Published

if TYPE_CHECKING:
    from tunec.schemas.hardware.profile import Device

LAUNCHED: Final = ("launch:flags.mixed_precision", "accelerate:mixed_precision")
"""Keys that set a launcher's precision: the `reads` of rules that compare it with another one."""
LOADERS: Final = ("model", *TRL, "hf")
"""Kinds that may set the dtype in which a model is loaded."""
_KEYS: Final = (
    *("dtype", "torch_dtype"),
    *("model_init_kwargs.dtype", "model_init_kwargs.torch_dtype"),
)
LOADED: Final = keys("model|trainer", *_KEYS)
"""The `reads` of rules about the dtype in which a model is loaded."""
_WORDS: Final = {
    **dict.fromkeys(("float16", "fp16", "half"), "fp16"),
    **dict.fromkeys(("bfloat16", "bf16"), "bf16"),
    **dict.fromkeys(("float32", "fp32", "float"), "fp32"),
}


def turned_on(run: LintContext, asked: Iterable[tuple[str, str]], word: str) -> list[Place]:
    """The places where one of the keys is true or equals `word`; each place once."""
    found = (place for kind, key in asked for place in run.each(kind, key))
    places = [place for place in found if place.value is True or place.value == word]
    return list({(place.span, place.path): place for place in places}.values())


def device_name(device: "Device") -> str:
    """A device's name with its compute capability: `Tesla V100 (compute capability 7.0)`."""
    if device.compute_capability is None:
        return device.title
    major, minor = device.compute_capability
    return f"{device.title} (compute capability {major}.{minor})"


def dtype_of(word: Any) -> str | None:
    """The short dtype: `torch.float16`, `float16` and `half` are `fp16`; None for other words."""
    return _WORDS.get(str(word).removeprefix("torch."))


def loaded_in(run: LintContext, dtype: str) -> Iterator[Place]:
    """The places where a file sets the dtype in which the model is loaded to a given one."""
    for document in run.of(*LOADERS):
        for key in _KEYS:
            place = document.get(key)
            if place is not None and not document.is_view and dtype_of(place.value) == dtype:
                yield place


def on_deepspeed(run: LintContext) -> bool:
    """Whether DeepSpeed runs the model, which keeps fp32 copies and scales the loss itself."""
    return bool(run.of("deepspeed")) or run.value("parallel.engine") == "deepspeed"


def computes_in_half(run: LintContext) -> bool | None:
    """Whether the trainer computes in 16 bits; None if that is unknown."""
    both = [run.effective("trainer", key) for key in ("bf16", "fp16")]
    if any(each.value is True for each in both):
        return True
    launched = run.said("accelerate", "mixed_precision") or run.said(
        "launch", "flags.mixed_precision"
    )
    if launched is not None and launched.value in ("bf16", "fp16", "fp8"):
        return True
    return False if all(each.value is False for each in both) else None


def below(run: LintContext, major: int, minor: int = 0) -> "Device | None":
    """The weakest NVIDIA device of the run, if its compute capability is lower.

    If the hardware mixes models and nothing selects some of them, only if all of them are lower.
    """
    weakest = run.environment.weakest
    if weakest is None or weakest.compute_capability is None:
        return None
    every = run.environment.devices.values()
    visible = run.value("devices.visible")
    used = [weakest] if visible is not None else every
    asked = (each.compute_capability or (0, 0) for each in used)
    return weakest if all(capability < (major, minor) for capability in asked) else None


def with_capability(device: "Device") -> str:
    """A device with its compilation target: `Tesla V100 (compute capability 7.0)`, `(gfx942)`."""
    major, minor = device.compute_capability or (0, 0)
    return f"{device.title} ({device.gfx or f'compute capability {major}.{minor}'})"


_SHORT: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_STORAGE: Final = "bnb_4bit_quant_storage"
_STORED: Final = re.compile(
    r"(?:^|[-_./])(gptq|awq|bnb-4bit|bnb-8bit|gguf|aqlm|hqq|int4|int8|4bit|8bit)(?:$|[-_./])",
    re.IGNORECASE,
)
_FP8: Final = re.compile(
    r"(?:^|/)(?:deepseek-(?:v3|r1)|minimax-m2)(?!.*(?:distill|qwen|llama|bf16|gguf))"
    r"|^(?:qwen|zai-org)/.*-fp8$",
    re.IGNORECASE,
)
"""Models published only in FP8 (deepseek-ai/DeepSeek-V3 and -R1, MiniMaxAI/MiniMax-M2:
`quantization_config` of their config.json), and publishers that name it (Qwen/Qwen3-8B-FP8)."""
_NO_CHANGE: Final = (None, "no_change")
_BLOCKS: Final = (
    *("quantization_config", "bnb_config", "model_init_kwargs.quantization_config"),
    "model_kwargs.quantization_config",
)
"""Keys that hold the quantization_config for `from_pretrained`: transformers 4.40.2 to 5.23.0
quantizers/auto.py `AutoQuantizationConfig.from_dict`."""
BLOCKS: Final = keys("model|trainer", *_BLOCKS)
QUANTISED: Final = (
    *keys("model|trainer|axolotl", "load_in_4bit", "load_in_8bit"),
    *("llamafactory:quantization_bit", "llama-cookbook:quantization", "sat:use_qlora"),
    *("simpletuner:*", *BLOCKS),
)
NAMED: Final = (
    *keys("model|trainer|minicpm-v", "model_name_or_path"),
    *("axolotl:base_model", "peft:base_model_name_or_path", "llama-cookbook:model_name"),
    *("simpletuner:*", "glm4:script"),
)
SHARDED: Final = (*keys("trainer|axolotl", "fsdp", "fsdp_config"), "accelerate:distributed_type")
"""The `reads` of rules about FSDP; QUANTISED and NAMED: about a quantised base, and a base's
name."""


class Base(Struct, frozen=True):
    """A base that a file requests to be quantised."""

    form: str
    """The quantisation's name: `nf4`, `int8`, `fp8-quanto`."""
    place: Place

    @property
    def document(self) -> Document:
        """The file that requests the quantisation."""
        return self.place.document


def quantised(run: LintContext) -> Base | None:
    """The quantised base, from the slot, from SimpleTuner's own keys, or from a block."""
    found = run.observed("quantization.format")
    place = run.place(found)
    if found is not None and place is not None and found.value not in (None, "none"):
        own = _of_simpletuner(run) if place.document.kind == "simpletuner" else None
        return Base(str(found.value), own or place)
    own = _of_simpletuner(run)
    if own is not None:
        return Base(str(own.value).strip().lower(), own)
    return next((each for block in blocks(run) if (each := _of_block(block)) is not None), None)


def blocks(run: LintContext) -> Iterator[Place]:
    """The places of blocks with the fields of a quantisation configuration of transformers."""
    for document in run.of(*LOADERS):
        for key in _BLOCKS if not document.is_view else ():
            at = document.get(key)
            if at is not None and isinstance(at.value, dict):
                yield at


def _of_block(block: Place) -> Base | None:
    """The bitsandbytes base that a block requests; its two switches win over `quant_method`."""
    four, eight = (block.document.get(f"{block.path}.load_in_{bits}bit") for bits in (4, 8))
    if four is not None and four.value is True:
        return Base(str(block.value.get("bnb_4bit_quant_type", "fp4")), four)
    return Base("int8", eight) if eight is not None and eight.value is True else None


def weights_of(run: LintContext) -> str | None:
    """The dtype of the weights, where files or the release of a Python file's loader say it.

    transformers 4.40.2 to 4.57.6 modeling_utils.py `from_pretrained`: fp32 without an argument;
    since 5.0 as they are stored.
    """
    told: str | None = run.value("states.weights")
    is_by_default = told is None and any(each.format == "python" for each in run.of("model"))
    return "fp32" if is_by_default and run.runs("transformers<5.0") is True else told


def as_loaded(run: LintContext) -> str | None:
    """What a Python file's trainer computes in where no argument says it: the weights' own dtype.

    Where no release is named it is the one in which they are stored.
    """
    trainers, switches = run.of("trainer"), ("bf16", "fp16")
    is_said = run.said("trainer", *switches) is not None or run.hides("trainer", *switches)
    is_python = bool(trainers) and all(each.format == "python" for each in trainers)
    if run.model is None or is_said or not is_python:
        return None
    return weights_of(run) or run.model.stored_dtype


def storage_of(run: LintContext, base: Base) -> str:
    """The storage dtype of 4-bit weights: `uint8`, `bf16`, `fp16`, `fp32`."""
    block, _, _ = base.place.path.rpartition(".")
    if block in _BLOCKS:
        word = base.document.value(f"{block}.{_STORAGE}")
        return _SHORT.get(str(word), "uint8")
    said = run.value("quantization.storage")
    return said if isinstance(said, str) else "uint8"


def storage_label(place: Place) -> tuple[Label, ...]:
    """The label of the storage dtype if 4 bits are requested and the file sets that dtype."""
    block, _, key = place.path.rpartition(".")
    said = place.document.get(f"{block}.{_STORAGE}" if block else _STORAGE)
    is_there = key == "load_in_4bit" and said is not None
    return (said.label("held in it", primary=False),) if said is not None and is_there else ()


def dtype_beside(base: Base) -> tuple[str, Place] | None:
    """The dtype that the file of a base sets for its other weights, if it is a known dtype."""
    said = (base.document.get(key) for key in ("torch_dtype", "dtype"))
    place = next((each for each in said if each is not None), None)
    short = _SHORT.get(str(place.value).removeprefix("torch.")) if place is not None else None
    return (short, place) if short is not None and place is not None else None


def _of_simpletuner(run: LintContext) -> Place | None:
    """The place where SimpleTuner's base is quantised, in a file or by a variable."""
    for document in configs(run):
        at = said(document, "base_model_precision")
        if at is not None and isinstance(at.value, str) and at.value not in _NO_CHANGE:
            return at
    return None


def stored_form(run: LintContext) -> tuple[str, Place] | None:
    """The stored quantisation that the base's name contains, and the place of the name."""
    place = run.place(run.observed("model.path"))
    if place is None or not isinstance(place.value, str):
        return None
    found = _STORED.search(place.value)
    return (found[1].lower(), place) if found else None


def published(run: LintContext) -> tuple[Published, Place] | None:
    """The form in which a base is published, if transformers can expand it, and its place."""
    place = run.place(run.observed("model.path"))
    if place is None or not isinstance(place.value, str) or stored_form(run) is not None:
        return None
    known = run.model
    if known is not None:
        return None if known.published == "none" else (known.published, place)
    return ("fp8", place) if _FP8.search(place.value.rstrip("/")) else None


_LEAST: Final = {"fp8": (8, 9), "mxfp4": (7, 5)}
"""The lowest compute capability on which a form is kept: transformers 5.0 to 5.23
quantizers/quantizer_finegrained_fp8.py and quantizer_mxfp4.py, `validate_environment`."""


def kept(run: LintContext) -> tuple[Published, Place] | None:
    """The published form that remains after loading, on these devices and with these files."""
    found, device = published(run), run.environment.weakest
    capability = device.compute_capability if device is not None else None
    if found is None or capability is None or capability < _LEAST[found[0]]:
        return None
    said = found[1].document.value("model_quantization_config_kwargs.dequantize")
    return None if said is True else found


def refused_by_llamafactory(run: LintContext) -> tuple[str, Place, Severity | None] | None:
    """A base that LLaMA-Factory refuses to shard: its form, its name's place, and the severity.

    llamafactory 0.9.1 and 0.9.3 model/model_utils/quantization.py `configure_quantization` refuse
    all; 0.9.5 expands FP8 and MXFP4.
    """
    found = stored_form(run)
    if found is not None:
        return (*found, None) if found[1].document.kind == "llamafactory" else None
    stored = published(run)
    if stored is None or stored[0] != "fp8" or stored[1].document.kind != "llamafactory":
        return None
    place = stored[1]
    is_expanded = run.runs("llamafactory>=0.9.4")
    return None if is_expanded else ("fp8", place, "warning" if is_expanded is None else None)


def severity_of(run: LintContext, place: Place) -> Severity | None:
    """The lower severity at the name of a base that only some releases refuse to shard."""
    found = refused_by_llamafactory(run)
    return found[2] if found is not None and found[1] == place else None


def by_another_library(run: LintContext) -> tuple[str, Place, str] | None:
    """A base that HQQ or EETQ quantises for LLaMA-Factory, which never shards it."""
    for document in run.of("llamafactory"):
        method, bits = document.get("quantization_method"), document.get("quantization_bit")
        is_on = bits is not None and bits.value and not document.is_view
        if is_on and method is not None and method.value in ("hqq", "eetq"):
            word = str(method.value).upper()
            note = f"{word} quantization is incompatible with DeepSpeed ZeRO-3 or FSDP"
            return f"a base quantised by {word}", method, note
    return None


def sharded_by_fsdp(run: LintContext) -> Place | None:
    """The place where FSDP is turned on, in any file."""
    for each in run.each("accelerate", "distributed_type"):
        if each.value == "FSDP":
            return each
    for key in ("fsdp", "fsdp_config"):
        for kind in ("trainer", "axolotl"):
            for each in run.each(kind, key):
                if each.value and each.value != "none":
                    return each
    return None


def processes(run: LintContext) -> int | None:
    """The number of processes from a launcher or --world-size, but not from the hardware."""
    world = run.world
    if world is None or world.rank == Rank.CATALOGUE or not isinstance(world.value, int):
        return None
    return world.value
