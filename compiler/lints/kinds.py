"""Kinds of documents: what rules call the files of the targets, and the keys that each has."""

from collections.abc import Iterable
from functools import cache
from json import loads
from pathlib import Path
from typing import Any, Final

import tunec.schemas
from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.target import File, Target

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
    **{
        ("trl-methods", f"{method}.yaml"): method
        for method in ("kto", "reward", "rloo", "gkd", "ppo")
    },
}
"""By target and file; another file is of the kind that its target is called."""
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
"""The share of its keys that a document must share with a kind to be taken for one."""
OF_SCRIPTS: Final = frozenset({"max_seq_length", "max_length", "dataset_num_proc"})
"""Fields of SFTConfig that examples of transformers and other scripts have for themselves."""
_DATA: Final = "multidatabackend.json"


def kind_of(target: Target, file: File) -> str:
    """What rules call a file of a target."""
    if file.name.endswith("ds_config.json"):
        return "deepspeed"
    if file.name.endswith(_DATA):
        return f"{target.name}-data"
    return _KINDS.get((target.name, file.name), target.name)


@cache
def fields_of(kind: str) -> frozenset[str]:
    """The fields of the classes behind a kind, in any release that is known."""
    return frozenset(
        name
        for stem in _CLASSES.get(kind, ())
        for release in known_releases(stem)
        for name in class_schema(stem, release)["properties"]
    )


@cache
def _file_keys(target: str, name: str, entries: tuple[tuple[str, ...], ...]) -> frozenset[str]:
    del target, name
    return frozenset(key.partition(".")[0] for keys in entries for key in keys)


def kind_by_class(keys: frozenset[str]) -> str | None:
    """The kind whose class knows most of some flags, if it knows enough; the first of equals."""
    shares = {kind: len(keys & fields_of(kind)) for kind in _CLASSES}
    best = max(shares, key=lambda kind: shares[kind])
    return best if keys and shares[best] >= LEAST_SHARE * len(keys) else None


def known_keys(target: Target, file: File) -> frozenset[str]:
    """Keys at the top of a file, as far as its rows, its schema and its class know them."""
    rows = _file_keys(target.name, file.name, tuple(entry.keys for entry in file.entries))
    kind = kind_of(target, file)
    return rows | fields_of(kind) | (_schema_keys(schema_name(target, file)))


def own_keys(target: Target | None, file: File | None, keys: Iterable[str]) -> frozenset[str]:
    """Keys that are nobody's whom the file is taken for: the program's that reads it."""
    known = frozenset() if target is None or file is None else known_keys(target, file)
    return frozenset(keys) - known


def schema_name(target: Target, file: File) -> str | None:
    """Path of the file's JSON Schema in the newest release."""
    if file.schema is None:
        return None
    return file.schema(target.dialect(target.release(target.latest)))


@cache
def _schema_keys(name: str | None) -> frozenset[str]:
    if name is None:
        return frozenset()
    return frozenset(schema(name).get("properties", {}))


@cache
def schema(name: str) -> dict[str, Any]:
    """A consumer's JSON Schema by its path below `schemas/json/`."""
    text = (_SCHEMAS / name).read_text("utf-8")
    found: dict[str, Any] = loads(text)
    return found
