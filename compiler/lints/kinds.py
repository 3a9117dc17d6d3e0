"""Kinds of documents: their names and keys, the kind a file name implies, and fragments.

Threads and documentation show the few keys that they are about. A required key that such a fragment
leaves out is not its fault: then a rule warns at most.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from json import loads
from pathlib import Path, PurePath
from typing import Any, Final

import tunec.schemas
from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.diagnostics.wording import nearly
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.target import File, Target
from tunec.schemas.caches import cached

_SCHEMAS: Final = Path(tunec.schemas.__file__).parent / "json"
_KINDS: Final = {
    ("huggingface", "training_args.yaml"): "hf",
    ("huggingface", "adapter_config.json"): "peft",
    ("huggingface", "model_args.yaml"): "model",
    ("huggingface", "sft.yaml"): "sft",
    ("launch", "accelerate.yaml"): "accelerate",
    ("launch", "launch.sh"): "launch",
    ("launchers", "accelerate launch"): "launch",
    ("launchers", "sbatch"): "slurm",
    ("trl", "sft.yaml"): "sft",
    ("trl", "dpo.yaml"): "dpo",
    ("trl", "grpo.yaml"): "grpo",
    ("trl", "reward.yaml"): "reward",
    **{("trl-methods", f"{method}.yaml"): method for method in ("kto", "rloo", "gkd", "ppo")},
}
"""The kind by target and file; other files have their target's name as kind."""
_CLASSES: Final = {
    "hf": ("training_arguments",),
    "peft": ("lora_config",),
    "sft": ("sft_config",),
    "dpo": ("dpo_config",),
    "grpo": ("grpo_config",),
    "kto": ("kto_config",),
    "reward": ("reward_config",),
    "rloo": ("rloo_config",),
    "gkd": ("gkd_config",),
    "ppo": ("ppo_config",),
}
LEAST_SHARE: Final = 0.6
"""The share of its keys that a document must have in common with a kind to count as that kind."""
OF_SCRIPTS: Final = frozenset({"max_seq_length", "max_length", "dataset_num_proc"})
"""Fields of SFTConfig that examples of transformers and other scripts also define themselves."""
_DATA: Final = ("multidatabackend.json", "dataset_info.json", "dataset.toml")
DATA_SETS: Final = "dataset_info.json"
"""The file in the folder `dataset_dir` in which LLaMA-Factory looks up names of data sets."""
EXPLAINED: Final = "dataset_info"
"""The key under which that file's text is put beside the YAML's keys, for a translation."""


def data_sets(document: Document) -> Iterator[Path]:
    """Paths where LLaMA-Factory's data set file may be, the most likely first."""
    named = "dataset" in document.found or "eval_dataset" in document.found
    if document.kind == "llamafactory" and named:
        folder = document.value("dataset_dir")
        yield Path(folder if isinstance(folder, str) else "data") / DATA_SETS
        yield Path(DATA_SETS)


def kind_of(target: Target, file: File) -> str:
    """The kind of a target's file, as rules name it."""
    if file.name.endswith("ds_config.json"):
        return "deepspeed"
    if file.name.endswith(_DATA):
        return f"{target.name}-data"
    return _KINDS.get((target.name, file.name), target.name)


@cached()
def fields_of(kind: str) -> frozenset[str]:
    """The fields of the classes behind a kind, in all known releases."""
    return frozenset(
        name
        for stem in _CLASSES.get(kind, ())
        for release in known_releases(stem)
        for name in class_schema(stem, release)["properties"]
    )


@cached()
def _file_keys(target: str, name: str, entries: tuple[tuple[str, ...], ...]) -> frozenset[str]:
    del target, name
    return frozenset(key.partition(".")[0] for keys in entries for key in keys)


def kind_by_class(keys: frozenset[str]) -> str | None:
    """The kind whose class has the most of some flags, if it has enough; the first of equals."""
    shares = {kind: len(keys & fields_of(kind)) for kind in _CLASSES}
    best = max(shares, key=lambda kind: shares[kind])
    return best if keys and shares[best] >= LEAST_SHARE * len(keys) else None


def known_keys(target: Target, file: File) -> frozenset[str]:
    """The top-level keys of a file that its rows, its schema or its class have."""
    rows = _file_keys(target.name, file.name, tuple(entry.keys for entry in file.entries))
    kind = kind_of(target, file)
    return rows | fields_of(kind) | (_schema_keys(schema_name(target, file)))


def own_keys(target: Target | None, file: File | None, keys: Iterable[str]) -> frozenset[str]:
    """Keys that the assumed kind of file lacks: they belong to the program that reads it."""
    known = frozenset() if target is None or file is None else known_keys(target, file)
    return frozenset(keys) - known


def schema_name(target: Target, file: File) -> str | None:
    """The path of the file's JSON Schema in the newest release, if it has one."""
    if file.schema is None:
        return None
    return file.schema(target.dialect(target.release(target.latest)))


@cached()
def _schema_keys(name: str | None) -> frozenset[str]:
    if name is None:
        return frozenset()
    return frozenset(schema(name).get("properties", {}))


@cached()
def schema(name: str) -> dict[str, Any]:
    """A consumer's JSON Schema by its path below `schemas/json/`."""
    text = (_SCHEMAS / name).read_text("utf-8")
    found: dict[str, Any] = loads(text)
    return found


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
    (re.compile(r"ms_?-?swift"), ("ms-swift", "ms-swift.yaml")),
    (re.compile(r"simple_?-?tuner"), ("simpletuner", "config/config.json")),
    (re.compile(r"^(trl|sft)\b"), ("trl", "sft.yaml")),
    (re.compile(r"^dpo\b"), ("trl", "dpo.yaml")),
    (re.compile(r"^grpo\b"), ("trl", "grpo.yaml")),
    (re.compile(r"^reward\b"), ("trl", "reward.yaml")),
    (re.compile(r"deepspeed|^ds([_-]|$)|^zero_?-?[0-3]"), ("deepspeed", "ds_config.json")),
)
"""Patterns of the names that projects and users give such files."""
_OUTRIGHT: Final = re.compile(r"train(er|ing)[_-]?arg|^hf(\b|[_-])")
"""Names that files of no other program have: then only half of the keys need to be known."""

_ALONE: Final = re.compile(
    r"train(er|ing)[_-]?arg|^(ds|deepspeed)[_-]?config|^adapter_config$|^accelerate[_-]?config"
)
"""Names that only configs have, whatever they contain."""

_LIKE: Final = 0.75
"""The similarity from which a word counts as a misspelt DeepSpeed key."""
_ENGINE: Final = ("deepspeed", "ds_config.json")
_MODEL: Final = ("huggingface", "model_args.yaml")
LOADING: Final = frozenset(
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
"""Arguments of `from_pretrained`: transformers 4.40.2 to 5.23.0 modeling_utils.py, quantizers; the
last two rows unslothai/unsloth models/loader.py."""
_BESIDE: Final = {
    _MODEL: LOADING,
    ("huggingface", "adapter_config.json"): frozenset({"method", "adapter_dtype"}),
}
"""Keys that are in no schema but that people put in a file of that name: for an adapter, its method
and the dtype in which `autocast_adapter_dtype` leaves it."""
_MARKS: Final = frozenset(
    {"load_in_4bit", "load_in_8bit", "quantization_config", "device_map", "torch_dtype"}
)


def is_a_config_by_name(name: str) -> bool:
    """Whether a file has a name that only configs have."""
    return _ALONE.search(PurePath(name).stem.lower()) is not None


def keys_by_name(name: str, targets: Mapping[str, Target]) -> frozenset[str]:
    """The known keys of the file that a name implies; empty if it implies no known file."""
    stem = PurePath(name).stem.lower()
    wanted = next((found for pattern, found in _NAMES if pattern.search(stem)), None)
    target = targets.get(wanted[0]) if wanted is not None else None
    files = (each for each in target.files if wanted and each.name == wanted[1]) if target else ()
    return frozenset[str]().union(*(known_keys(target, each) for each in files if target))


def by_name(
    name: str, files: Iterable[tuple[Target, File]], document: Any
) -> tuple[Target, File] | None:
    """The file that a name or loading keys imply, if it has enough of the document's keys."""
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
    """The keys that a file has; for DeepSpeed also keys of its blocks, and similar names.

    A user who shows a key without effect often shows it alone, and that key is in no schema.
    """
    if kind_of(target, file) != "deepspeed":
        return keys & (known_keys(target, file) | beside)
    known = _at_any_level(schema_name(target, file))
    return {key for key in keys if key in known or nearly(key, known, _LIKE)}


@cached()
def _at_any_level(name: str | None) -> frozenset[str]:
    """The names of a schema's keys at all levels, and of removed keys."""
    found = schema(name) if name is not None else {}
    return frozenset(_names(found)) | frozenset(found.get("x-refused", ()))


def _names(schema: Mapping[str, Any]) -> Iterable[str]:
    for name, inner in schema.get("properties", {}).items():
        yield name
        yield from _names(inner)
    for each in schema.get("anyOf", ()):
        yield from _names(each)


def keys_of_loading(document: dict[str, Any]) -> bool:
    """Whether a file only sets how a model is loaded."""
    return bool(_MARKS & set(document)) and set(document) <= LOADING


_WHOLE: Final[Mapping[str, tuple[str, ...]]] = {
    "axolotl": ("base_model", "output_dir"),
    "llamafactory": ("model_name_or_path", "output_dir"),
    **dict.fromkeys(TRL, ("model_name_or_path",)),
}
"""Keys that every file of a program has which anybody runs: its examples have both throughout
(axolotl 0.19.0 examples, llamafactory 0.9.4 examples); trl 0.8.6 to 1.16.0 trainer/model_config.py
`ModelConfig`: without a model there is nothing to load."""


def is_fragment(document: Document) -> bool:
    """Whether a file lacks a key that every whole file has; flags of a program are whole."""
    if document.format == "shell":
        return False
    return any(document.get(key) is None for key in _WHOLE.get(document.kind, ()))


def without_dashes(keys: Iterable[str]) -> frozenset[str]:
    """Flags by their names: SimpleTuner's file may have them with dashes and without."""
    return frozenset(key.lstrip("-") for key in keys)


# ── files of nobody who is known ─────────────────────────────────────────────────────────────────

_OF_OTHERS: Final = frozenset(
    {
        *("train_type", "sft_type"),
        *("with_tracking", "use_slow_tokenizer", "dataset_mixer_list"),
        *("kt_config", "_n_gpu", "global_world_size"),
    }
)
"""Keys of ms-swift before 4.0, which has many of TrainingArguments' with other defaults (swift 2.0
to 3.12 llm/argument), of Open Instruct's own loop (allenai/open-instruct finetune.py
`FlatArguments`), of KTransformers' own accelerate (LLaMA-Factory examples/ktransformers), and of
what a run wrote of its arguments (transformers 4.40.2 to 5.23.0 training_args.py `_n_gpu`, a field
that its parser does not take; ms-swift 4.1.0 arguments/base_args `save_args`, args.json)."""
_OF_EVALUATION: Final = frozenset({"n_shot", "lang", "task_dir"})
"""Beside `task`: the file of `llamafactory-cli eval` (llamafactory 0.7.0 to 0.9.3
hparams/evaluation_args.py `EvaluationArguments`), which trains nothing."""
_RECORDED: Final = frozenset({"value", "desc"})
"""What W&B's record of a run holds of each setting (wandb 0.12 to 0.23 sdk/lib/config_util.py
`dict_add_value_dict`): no program reads its config.yaml."""
_UNASKED: Final = frozenset(
    {
        *("bos_token", "unk_token", "sep_token", "cls_token", "mask_token"),
        "additional_special_tokens",
    }
)
_TOKENS: Final = _UNASKED | {"eos_token", "pad_token"}
"""A tokenizer's special_tokens_map.json: transformers 4.40.2 to 5.23.0 tokenization_utils_base.py
`SPECIAL_TOKENS_ATTRIBUTES`. TRL's classes have the last two as well."""
_LEAST_ALIKE: Final = 3
"""Keys that several sections of one file have, from which on these are alternatives."""


_OF_ACCELERATOR: Final = frozenset(
    {
        *("split_batches", "dispatch_batches", "even_batches", "use_seedable_sampler"),
        *("non_blocking", "gradient_accumulation_kwargs", "use_configured_state"),
    }
)
"""transformers 4.40.2 to 5.23.0 trainer_pt_utils.py `AcceleratorConfig`: a file of these alone is
what --accelerator_config names, though some were fields of TrainingArguments, too."""


def is_of_others(document: Any) -> bool:
    """Whether the keys, or the form of all values, belong to an unknown program."""
    if not isinstance(document, dict):
        return False
    said = [each for key, each in document.items() if key != "wandb_version"]
    is_record = len(said) > 1 and all(
        isinstance(each, dict) and each.keys() <= _RECORDED for each in said
    )
    is_record = is_record and any("value" in each for each in said)
    is_tokenizer_s = document.keys() <= _TOKENS and not _UNASKED.isdisjoint(document)
    is_evaluation = "task" in document and not _OF_EVALUATION.isdisjoint(document)
    is_block = bool(document) and document.keys() <= _OF_ACCELERATOR
    is_of_other_form = is_record or is_tokenizer_s or is_evaluation or is_block
    return is_of_other_form or not _OF_OTHERS.isdisjoint(document)


def has_alternatives(root: Node) -> bool:
    """Whether several sections set the same keys, each for a separate run."""
    keys = Counter(key for each in (root.fields or {}).values() for key in each.fields or ())
    return sum(count > 1 for count in keys.values()) >= _LEAST_ALIKE
