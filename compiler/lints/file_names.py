"""What a file's name says of a few keys that several programs have."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import PurePath
from typing import Any, Final

from tunec.compiler.diagnostics.wording import nearly
from tunec.compiler.lints.kinds import kind_of, known_keys, schema, schema_name
from tunec.compiler.target import File, Target

_NAMES: Final = (
    (
        re.compile(r"train(er|ing)?[_-]?(arg|config)|^hf(\b|[_-])|^(args|train|trainer)$"),
        ("huggingface", "training_args.yaml"),
    ),
    (re.compile(r"model_?(arg|load)"), ("huggingface", "model_args.yaml")),
    (re.compile(r"adapter_config|^peft|lora_config"), ("huggingface", "adapter_config.json")),
    (re.compile(r"accelerate"), ("accelerate", "accelerate.yaml")),
    (re.compile(r"axolotl"), ("axolotl", "axolotl.yaml")),
    (re.compile(r"llama_?-?factory"), ("llamafactory", "llamafactory.yaml")),
    (re.compile(r"simple_?-?tuner"), ("simpletuner", "config/config.json")),
    (re.compile(r"^(trl|sft)\b"), ("trl", "sft.yaml")),
    (re.compile(r"^dpo\b"), ("trl", "dpo.yaml")),
    (re.compile(r"^grpo\b"), ("trl", "grpo.yaml")),
    (re.compile(r"deepspeed|^ds([_-]|$)|^zero_?-?[0-3]"), ("deepspeed", "ds_config.json")),
)
"""By the names that makers and users give such files."""
_OUTRIGHT: Final = re.compile(r"train(er|ing)[_-]?arg|^hf(\b|[_-])")
"""Names that no other program's file has: half of the keys need to be known then."""

_LIKE: Final = 0.75
"""How like a key of DeepSpeed's a word has to be to be meant for it."""
_ENGINE: Final = ("deepspeed", "ds_config.json")
_MODEL: Final = ("huggingface", "model_args.yaml")
_LOADING: Final = frozenset(
    {
        *("model_name_or_path", "pretrained_model_name_or_path", "model_name", "model_id"),
        *("load_in_4bit", "load_in_8bit", "quantization_config", "device_map", "max_memory"),
        *("torch_dtype", "dtype", "attn_implementation", "low_cpu_mem_usage", "use_cache"),
        *("trust_remote_code", "use_flash_attention_2", "offload_folder", "revision"),
        *("bnb_4bit_compute_dtype", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant"),
        *("bnb_4bit_quant_storage", "llm_int8_threshold", "llm_int8_skip_modules"),
        *("llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "max_seq_length"),
        *("load_in_16bit", "full_finetuning", "fast_inference", "max_lora_rank"),
    }
)
"""What `from_pretrained` is given: transformers 4.40.2 to 5.23.0 modeling_utils.py, quantizers; the
last two rows unslothai/unsloth models/loader.py."""
_BESIDE: Final = {
    _MODEL: _LOADING,
    ("huggingface", "adapter_config.json"): frozenset({"method", "adapter_dtype"}),
}
"""Keys that nobody's schema has, and that people show in a file of that name: of an adapter, what
it is called and the dtype that `autocast_adapter_dtype` leaves it in."""
_MARKS: Final = frozenset(
    {"load_in_4bit", "load_in_8bit", "quantization_config", "device_map", "torch_dtype"}
)


def by_name(
    name: str, files: Iterable[tuple[Target, File]], document: Any
) -> tuple[Target, File] | None:
    """The file that the name speaks of, if it knows the keys; content decides otherwise."""
    stem = PurePath(name).stem.lower()
    wanted = next((found for pattern, found in _NAMES if pattern.search(stem)), None)
    if not isinstance(document, dict) or not document:
        return None
    if wanted is None and keys_of_loading(document):
        wanted = _MODEL
    if wanted is None or (wanted == _ENGINE and not name.endswith(".json")):
        return None
    keys = set(document)
    beside = _BESIDE.get(wanted, frozenset())
    least = len(keys) / 2 if _OUTRIGHT.search(stem) else len(keys)
    return next(
        (
            (target, file)
            for target, file in files
            if (target.name, file.name) == wanted
            and len(_known(keys, target, file, beside)) >= least
        ),
        None,
    )


def _known(keys: set[str], target: Target, file: File, beside: frozenset[str]) -> set[str]:
    """The keys that a file has; of DeepSpeed's also those of its blocks, and what is near one.

    Whoever shows a key that does nothing shows it alone, and that one is in no schema.
    """
    if kind_of(target, file) != "deepspeed":
        return keys & (known_keys(target, file) | beside)
    known = _at_any_level(schema_name(target, file))
    return {key for key in keys if key in known or nearly(key, known, _LIKE)}


@cache
def _at_any_level(name: str | None) -> frozenset[str]:
    """The names of the keys of a schema, at the top and below, and of those that are gone."""
    found = schema(name) if name is not None else {}
    return frozenset(_names(found)) | frozenset(found.get("x-refused", ()))


def _names(schema: Mapping[str, Any]) -> Iterable[str]:
    for name, inner in schema.get("properties", {}).items():
        yield name
        yield from _names(inner)
    for each in schema.get("anyOf", ()):
        yield from _names(each)


def keys_of_loading(document: dict[str, Any]) -> bool:
    """Whether a file says how a model is loaded, and nothing else."""
    return bool(_MARKS & set(document)) and set(document) <= _LOADING
