"""Random files of every dialect: what makes a file one, and a few more of its program's keys."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import yaml
from hypothesis import strategies as st
from msgspec import Struct

from tunec.compiler.emit import schema
from tunec.compiler.target import File, Target
from tunec.schemas.dotted_paths import nested
from tunec.targets.registry import TARGETS

Values = dict[str, Any]
READABLE: Final = TARGETS.readable()
_DEEPEST: Final = 4
_WORDS: Final[Mapping[str, tuple[Any, ...]]] = {
    "optim": ("adamw_torch", "adamw_torch_fused", "paged_adamw_8bit", "galore_adamw", "sgd"),
    "optimizer": ("adamw_torch", "adamw_bnb_8bit", "lion_8bit", "came_pytorch", "prodigy"),
    "lr_scheduler_type": ("cosine", "linear", "constant_with_warmup", "polynomial"),
    "lr_scheduler": ("cosine", "linear", "constant", "rex"),
    "attn_implementation": ("sdpa", "eager", "flash_attention_2", "flex_attention"),
    "deepspeed": (None,),
    "lora_target_modules": (["q_proj", "v_proj"], "all-linear"),
    "target_modules": (["q_proj", "v_proj"], "all-linear"),
    "modules_to_save": (["lm_head"],),
    "report_to": ("none", "wandb", ["tensorboard"]),
    "save_strategy": ("no", "steps", "epoch"),
    "eval_strategy": ("no", "steps", "epoch"),
    "evaluation_strategy": ("no", "steps", "epoch"),
    "mixed_precision": ("no", "bf16", "fp16"),
    "torch_dtype": ("bfloat16", "float32", "auto"),
    "dtype": ("bfloat16", "float32", "bf16"),
    **dict.fromkeys(("eval_data_path", "valid-data", "data_path"), ("data.json",)),
    "test_split_size": (0.1,),
    "gradient_checkpointing_kwargs": ({"use_reentrant": False},),
}
"""Words of keys that take any text, by the last part of the key."""


def _yaml(values: Values) -> str:
    return yaml.safe_dump(nested(values), sort_keys=False)


def _json(values: Values) -> str:
    return json.dumps(nested(values))


def _toml(values: Values) -> str:
    lines = (f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None)
    return "\n".join(lines) + "\n"


def _flags(start: str) -> Callable[[Values], str]:
    def text(values: Values) -> str:
        given = (_flag(key.removeprefix("flags."), value) for key, value in values.items())
        return " \\\n  ".join([start, *filter(None, given)]) + "\n"

    return text


def _flag(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    words = value if isinstance(value, list) else [] if value is True else [value]
    return " ".join([f"--{key}", *(str(word) for word in words)])


class Source(Struct, frozen=True):
    """Files of one kind that are drawn."""

    reader: str
    file: str
    releases: tuple[str, ...]
    always: Values
    """What the file says in any case, by dotted path."""
    text: Callable[[Values], str] = _yaml
    name: str = ""
    """The name of the file that is read, where it is not that of the table."""

    @property
    def table(self) -> File:
        """The rows of the file."""
        return next(each for each in READABLE[self.reader].files if each.name == self.file)

    def written(self, values: Values) -> Values:
        """The values that the file's text holds: a flag is given or left out."""
        if self.text in (_yaml, _json):
            return values
        return {key: each for key, each in values.items() if each is not None and _has(self, each)}

    @property
    def called(self) -> str:
        """The file's name."""
        return self.name or self.file


def _has(source: Source, value: Any) -> bool:
    return source.text is _toml or value is not False


_MODEL: Final = "Qwen/Qwen2.5-0.5B"
_TRL: Final = {"model_name_or_path": _MODEL, "output_dir": "out", "max_length": 512}
_PAIRS: Final = {**_TRL, "dataset_name": "trl-lib/ultrafeedback_binarized", "beta": 0.1}
_SAMPLES: Final = {**_TRL, "dataset_name": "trl-lib/Capybara", "packing": False}
_FLUX: Final = "black-forest-labs/FLUX.1-dev"
_KOHYA: Final = {
    "pretrained_model_name_or_path": _FLUX,
    "network_module": "networks.lora_flux",
    "output_dir": "out",
    "dataset_config": "data.toml",
    "max_train_steps": 100,
    "learning_rate": 1e-4,
    "mixed_precision": "bf16",
    "network_dim": 16,
}
SOURCES: Final = (
    Source(
        *("huggingface", "training_args.yaml", ("4.44.2", "4.57.6", "5.23.0")),
        {"output_dir": "out", "per_device_train_batch_size": 2},
    ),
    Source("trl", "sft.yaml", ("0.17.0", "0.27.2", "1.16.0"), _SAMPLES),
    Source("trl", "dpo.yaml", ("0.17.0", "0.27.2", "1.16.0"), _PAIRS),
    Source(
        *("trl", "grpo.yaml", ("0.27.2", "1.16.0")),
        {
            "model_name_or_path": _MODEL,
            "output_dir": "out",
            "num_generations": 8,
            "dataset_name": "openai/gsm8k",
            "reward_funcs": ["rewards.correct"],
        },
    ),
    Source(
        *("deepspeed", "ds_config.json", ("0.14.5", "0.18.9", "0.19.8")),
        {"train_micro_batch_size_per_gpu": 2, "zero_optimization.stage": 2},
        _json,
    ),
    Source(
        *("accelerate", "accelerate.yaml", ("0.30.1", "1.4.0", "1.15.0")),
        {"distributed_type": "MULTI_GPU", "num_machines": 1, "num_processes": 8},
    ),
    Source(
        *("llamafactory", "llamafactory.yaml", ("0.9.3", "0.9.5")),
        {
            "model_name_or_path": _MODEL,
            "output_dir": "out",
            "stage": "sft",
            "do_train": True,
            "finetuning_type": "lora",
            "dataset": "x",
            "template": "qwen",
        },
    ),
    Source(
        *("axolotl", "axolotl.yaml", ("0.13.2", "0.19.0")),
        {
            "base_model": _MODEL,
            "datasets": [{"path": "tatsu-lab/alpaca", "type": "alpaca"}],
            "micro_batch_size": 1,
            "num_epochs": 1,
            "sequence_len": 512,
            "optimizer": "adamw_torch",
            "learning_rate": 1e-4,
            "bf16": True,
        },
    ),
    Source(
        *("ms-swift", "ms-swift.yaml", ("4.0.4", "4.6.0")),
        {"model": _MODEL, "dataset": ["tatsu-lab/alpaca"], "tuner_type": "lora"},
    ),
    Source(
        *("ms-swift", "ms-swift.yaml", ("4.0.4", "4.6.0")),
        {"model": _MODEL, "dataset": "tatsu-lab/alpaca", "output_dir": "out"},
        *(_flags("NPROC_PER_NODE=8 swift sft"), "train.sh"),
    ),
    Source(
        *("unsloth", "unsloth.yaml", ("2026.7.6", "2026.10.9")),
        {"model": _MODEL, "data.dataset": "tatsu-lab/alpaca", "training.training_type": "lora"},
    ),
    Source(
        *("verl", "verl_sft.yaml", ("0.8.0", "0.9.1")),
        {"data.train_files": "train.parquet", "model.path": _MODEL, "data.max_length": 512},
    ),
    Source(
        *("verl", "verl_grpo.yaml", ("0.8.0", "0.9.1")),
        {
            "data.train_files": "train.parquet",
            "data.train_batch_size": 64,
            "actor_rollout_ref.model.path": _MODEL,
            "algorithm.adv_estimator": "grpo",
            "actor_rollout_ref.rollout.n": 8,
        },
    ),
    Source(
        *("openrlhf", "openrlhf_sft.sh", ("0.10.4", "0.11.2")),
        {"flags.model.model_name_or_path": _MODEL, "flags.data.dataset": "train.jsonl"},
        _flags("torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft"),
    ),
    Source(
        *("openrlhf", "openrlhf_dpo.sh", ("0.10.4", "0.11.2")),
        {"flags.model.model_name_or_path": _MODEL, "flags.data.dataset": "pairs.jsonl"},
        _flags("torchrun --nproc_per_node=8 -m openrlhf.cli.train_dpo"),
    ),
    Source(
        *("torchtune", "torchtune.yaml", ("0.6.1",)),
        {
            "model._component_": "torchtune.models.qwen2_5.qwen2_5_0_5b",
            "tokenizer._component_": "torchtune.models.qwen2_5.qwen2_5_tokenizer",
            "tokenizer.max_seq_len": 512,
            "checkpointer._component_": "torchtune.training.FullModelHFCheckpointer",
            "checkpointer.checkpoint_dir": "/models/Qwen2.5-0.5B",
            "checkpointer.checkpoint_files": ["model.safetensors"],
            "dataset._component_": "torchtune.datasets.alpaca_dataset",
            "optimizer._component_": "torch.optim.AdamW",
            "optimizer.lr": 2e-5,
            "batch_size": 2,
            "epochs": 1,
            "dtype": "bf16",
        },
    ),
    Source("sd-scripts", "sd-scripts.toml", ("0.9.1", "0.10.1"), _KOHYA, _toml),
    Source(
        *("sd-scripts", "sd-scripts command", ("0.9.1", "0.10.1"), _KOHYA),
        *(_flags("accelerate launch flux_train_network.py"), "train.sh"),
    ),
    Source("musubi-tuner", "musubi-tuner.toml", ("0.2.15", "0.3.4"), _KOHYA, _toml),
    Source(
        *("musubi-tuner", "musubi-tuner command", ("0.2.15", "0.3.4"), _KOHYA),
        *(_flags("accelerate launch src/musubi_tuner/wan_train_network.py"), "train.sh"),
    ),
    Source(
        *("simpletuner", "config/config.json", ("3.3.4", "4.10.1")),
        {
            "--model_family": "flux",
            "--pretrained_model_name_or_path": _FLUX,
            "--output_dir": "out",
            "--model_type": "lora",
            "--max_train_steps": 100,
        },
        *(_json, "config.json"),
    ),
    Source(
        *("glm4", "finetune.yaml", ("4.57.6",)),
        {
            "data_config.train_file": "train.jsonl",
            "max_input_length": 512,
            "training_args.output_dir": "out",
        },
    ),
    Source(
        *("minicpm-v", "finetune.sh", ("4.51.3",)),
        {
            "flags.model_name_or_path": "openbmb/MiniCPM-V-2_6",
            "flags.llm_type": "qwen",
            "flags.data_path": "data.json",
            "flags.output_dir": "out",
        },
        _flags("torchrun --nproc_per_node=8 finetune.py"),
    ),
    Source(
        *("llama-cookbook", "finetuning.sh", ("0.0.5.post1",)),
        {"flags.model_name": "meta-llama/Llama-3.1-8B", "flags.dataset": "alpaca_dataset"},
        _flags("torchrun --nproc_per_node=8 finetuning.py"),
    ),
    Source(
        *("visualglm", "finetune_visualglm.sh", ("0.4.12",)),
        {"flags.max_source_length": 64, "flags.train-iters": 100, "flags.batch-size": 4},
        _flags("deepspeed --num_gpus=8 finetune_visualglm.py"),
    ),
    Source("trl-methods", "kto.yaml", ("1.16.0",), _PAIRS, name="kto.yaml"),
    Source("trl", "reward.yaml", ("0.27.2", "1.16.0"), _TRL | {"center_rewards_coefficient": 0.01}),
)


_OLD: Final = "per_gpu_"
"""Names that are read by their newer ones."""


def _around(key: str) -> tuple[str, ...]:
    return (key, *(key[:at] for at, mark in enumerate(key) if mark == "."))


def values_of(field: Any, defs: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema admits at a key: leaves, and lists of words."""
    if not isinstance(field, dict) or not field:
        return st.sampled_from((True, False, 1, 2, 0.5, "one"))
    if "$ref" in field:
        return values_of(defs.get(field["$ref"].rpartition("/")[2], {}), defs)
    if "const" in field:
        return st.just(field["const"])
    if "enum" in field:
        return st.sampled_from(field["enum"])
    for word in ("anyOf", "oneOf"):
        if word in field:
            return st.one_of([values_of(each, defs) for each in field[word]])
    kinds = field.get("type", ())
    named = [_OF_TYPE[each] for each in ([kinds] if isinstance(kinds, str) else kinds)]
    return st.one_of(named) if named else st.none()


_OF_TYPE: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "boolean": st.booleans(),
    "integer": st.integers(1, 9),
    "number": st.sampled_from((0.25, 0.5, 1.0, 2.0)),
    "string": st.sampled_from(("one", "two")),
    "array": st.just(["one"]),
    "null": st.none(),
    "object": st.none(),
}


def fields_of(
    known: Mapping[str, Any], defs: Mapping[str, Any], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Keys that hold no others, by dotted path, each with its schema."""
    for key, field in known.items():
        every = field if isinstance(field, dict) else {}
        parts = (every, *every.get("anyOf", ()))
        parts = tuple(defs.get(str(p.get("$ref")).rpartition("/")[2], p) for p in parts)
        inside = next((p["properties"] for p in parts if p.get("properties")), None)
        if inside is None or depth == _DEEPEST:
            yield f"{prefix}{key}", field
        else:
            yield from fields_of(inside, defs, f"{prefix}{key}.", depth + 1)


def keys_of(source: Source, release: str) -> Mapping[str, tuple[Any, Mapping[str, Any]]]:
    """The keys that a file may hold, each with its schema and what that refers to."""
    target: Target = READABLE[source.reader]
    dialect, table = target.dialect(target.release(release)), source.table
    found: dict[str, tuple[Any, Mapping[str, Any]]] = {
        key: ({}, {})
        for key in (
            *(key for row in table.entries for key in row.keys if row.holds_in(dialect)),
            *(each.old for each in table.leaves),
        )
        if "[" not in key and "environment" not in key
    }
    path, prefix = table.schema(dialect) if table.schema is not None else None, ""
    if path is None and table.block is not None:
        path, prefix = table.block[1](dialect), f"{table.block[0]}."
    if path is not None:
        whole = schema(path)
        defs = whole.get("$defs", {})
        found |= {key: (field, defs) for key, field in fields_of(whole["properties"], defs, prefix)}
    holders = {key[:at] for key in found for at, mark in enumerate(key) if mark == "."}
    return {
        key: each
        for key, each in found.items()
        if key.startswith(prefix) and key not in holders and not key.startswith(_OLD)
    }


@st.composite
def files(draw: st.DrawFn, source: Source, most: int = 5) -> tuple[str, Values]:
    """A release of a program, and what a file of it says, by dotted path."""
    release = draw(st.sampled_from(source.releases))
    known = keys_of(source, release)
    taken = source.always.keys()
    free = sorted(key for key in known if taken.isdisjoint((*_around(key), f"--{key}")))
    keys = draw(st.lists(st.sampled_from(free), min_size=1, max_size=most, unique=True))
    said = {key: draw(_values(key, *known[key])) for key in keys}
    return release, {**source.always, **said}


def _values(key: str, field: Any, defs: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    words = _WORDS.get(key.rpartition(".")[2].removeprefix("--"))
    return st.sampled_from(words) if words else values_of(field, defs)
