"""What a Python program passes to `from_pretrained`: the model, its dtype, its quantization."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Moved, all_gone
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, File, in_no_plan, named, same
from tunec.schemas.frozen import replace
from tunec.targets.huggingface.model import DTYPES
from tunec.targets.rows import in_four_bits

_LOADER: Final = "transformers 4.40.2 to 5.23.0 modeling_utils.py `from_pretrained`"
_BITS: Final = "transformers 4.40.2 to 5.23.0 utils/quantization_config.py `BitsAndBytesConfig`"
_CONFIG: Final = "quantization_config"


def _dtype(key: str, slot: str, source: str, **words: Any) -> Entry:
    """A row for a dtype, with or without the name of torch's module."""
    plain = named(key, slot, DTYPES, source, **words)

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        return plain.read({key: str(found[key]).removeprefix("torch.")})

    return replace(plain, read=read)


def _in_words(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The format by the switches of one place; fp4 is BitsAndBytesConfig's own default."""
    told = {key.rpartition(".")[2]: value for key, value in found.items()}
    if told.get("load_in_8bit") is True:
        return {"quantization.format": "int8"}
    if told.get("load_in_4bit") is True:
        return {"quantization.format": told.get("bnb_4bit_quant_type", "fp4")}
    return {"quantization.format": "none"}


def _never(_: Plan) -> Mapping[str, Any]:
    return {}


def _quantized(prefix: str) -> Iterator[Entry]:
    """The rows for bitsandbytes, whose settings stand in a config or, before 5.0, beside it."""
    keys = tuple(f"{prefix}{each}" for each in ("load_in_4bit", "load_in_8bit"))
    kind = f"{prefix}bnb_4bit_quant_type"
    yield Entry((*keys, kind), ("quantization.format",), _never, _in_words, _BITS)
    yield same(
        f"{prefix}bnb_4bit_use_double_quant",
        "quantization.double",
        _BITS,
        default=False,
        when=in_four_bits,
    )
    yield _dtype(
        f"{prefix}bnb_4bit_compute_dtype",
        "quantization.compute",
        f"{_BITS}: absent, float32",
        absent=((ALWAYS, "fp32"),),
        when=in_four_bits,
    )
    yield _dtype(
        f"{prefix}bnb_4bit_quant_storage",
        "quantization.storage",
        f"{_BITS}: absent, uint8",
        absent=((ALWAYS, None),),
        when=in_four_bits,
    )


def _aside(keys: Iterable[str], instead: str) -> Iterator[Moved]:
    return all_gone(keys, _LOADER, instead)


FROM_PRETRAINED: Final = File(
    name="from_pretrained",
    format="text",
    entries=(
        same("model_name_or_path", "model.path", _LOADER),
        _dtype("torch_dtype", "states.weights", _LOADER),
        _dtype("dtype", "states.weights", _LOADER, since="4.56"),
        same("attn_implementation", "attention.implementation", _LOADER),
        same("trust_remote_code", "model.trust_remote_code", _LOADER, default=False),
        *_quantized(f"{_CONFIG}."),
        *_quantized(""),
    ),
    recognise=lambda _: False,
    when=in_no_plan,
    leaves=(
        *_aside(("device_map", "max_memory"), "each process has a whole model or its shard"),
        *_aside(("low_cpu_mem_usage", "use_cache"), "the program loads the model in its own way"),
    ),
)
"""The arguments of `from_pretrained` in a Python program; tunec reads them, and writes none."""
