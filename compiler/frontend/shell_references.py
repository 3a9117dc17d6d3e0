"""The program of a command's flags, and the configuration files that it names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.nodes import Node, place
from tunec.schemas.source import Path, Span


class Reference(Struct, frozen=True):
    """A file that a command names, and its kind."""

    path: Path
    """The key that names it; empty for a word that belongs to no flag."""
    file: str
    """As written: relative to the directory in which the command runs."""
    reader: str
    span: Span


_PROGRAMS: Final[Mapping[str, str]] = {
    "llamafactory-cli": "llamafactory",
    "lmf": "llamafactory",
    "llamafactory": "llamafactory",
    "axolotl": "axolotl",
    "trl": "trl",
    "simpletuner": "simpletuner",
    "swift": "ms-swift",
}
_MARKS: Final[tuple[tuple[str, int, frozenset[str]], ...]] = (
    ("llamafactory", 1, frozenset({"finetuning_type"})),
    (
        "llamafactory",
        2,
        frozenset(
            {*("finetuning_type", "cutoff_len", "dataset_dir", "lora_target", "stage"), "template"}
        ),
    ),
    ("simpletuner", 1, frozenset({"data_backend_config", "model_family"})),
    (
        "huggingface",
        1,
        frozenset(
            {
                *("per_device_train_batch_size", "per_device_eval_batch_size", "save_strategy"),
                *("eval_strategy", "evaluation_strategy", "logging_strategy", "fsdp_config"),
            }
        ),
    ),
    (
        "huggingface",
        2,
        frozenset(
            {
                *("num_train_epochs", "lr_scheduler_type", "save_total_limit", "optim", "bf16"),
                *("fp16", "tf32", "logging_steps", "warmup_ratio", "gradient_checkpointing"),
            }
        ),
    ),
)
"""How many of which flags identify a program, the most specific ones first: LLaMA-Factory passes on
those of TrainingArguments (llamafactory 0.9.5 hparams/parser.py `_TRAIN_ARGS`)."""
OWN: Final = "script"
_EXAMPLES: Final = re.compile(
    r"(\A|/)(train_(dreambooth|text_to_image|controlnet|instruct_pix2pix|t2i_adapter|control|"
    r"cogvideox|lcm_distill|custom_diffusion|unconditional)|textual_inversion)\w*\.py\Z"
)
"""Training scripts below `examples` of huggingface/diffusers, which have their own flags."""
_COOKBOOK: Final = re.compile(
    r"(\A|[/.])llama_(recipes|cookbook)[/.]finetuning(\.py)?\Z|(\A|/)(llama_)?finetuning\.py\Z"
)
_COOKBOOK_MARKS: Final = frozenset(
    {"enable_fsdp", "use_peft", "peft_method", "batch_size_training", "model_name", "quantization"}
)
_COOKBOOK_FEW: Final = _COOKBOOK_MARKS | {
    *("batching_strategy", "context_length", "dataset", "dist_checkpoint_folder", "lr"),
    *("dist_checkpoint_root_folder", "low_cpu_fsdp", "num_epochs", "one_gpu", "output_dir"),
    *("run_validation", "save_model", "use_fast_kernels", "use_fp16", "val_batch_size"),
}
"""meta-llama/llama-cookbook: the module, or the script in its folder that starts it. If it gets a
model, and at most one of these marks, the other flags must be its own as well."""
_ALPACA: Final = re.compile(r"(\A|/)finetune\.py\Z")
_ALPACA_MARKS: Final = frozenset(
    {"micro_batch_size", "cutoff_len", "lora_target_modules", "val_set_size", "train_on_inputs"}
)
"""tloen/alpaca-lora 8bb8579 finetune.py `train`, and scripts derived from it."""
GLM4: Final = re.compile(r"(\A|/)finetune(_hf|_vision)?\.py\Z")
"""zai-org/GLM-4 3f79b54 finetune/finetune.py and finetune_vision.py `main`: data, model,
configuration."""
_WORDS_OF_GLM4: Final = 3
_SAT_MARKS: Final = frozenset(
    {
        *("experiment_name", "model_parallel_size", "train_iters", "resume_dataloader"),
        *("skip_init", "distributed_backend", "lr_decay_style", "checkpoint_activations"),
    }
)
"""SwissArmyTransformer 0.4.12 sat/arguments.py, which provides the flags of the scripts of
VisualGLM, CogVLM and CogAgent."""
_MEGATRON_MARKS: Final = frozenset(
    {
        *("seq_length", "max_position_embeddings", "micro_batch_size", "global_batch_size"),
        *("tensor_model_parallel_size", "data_path", "data_impl", "vocab_file", "merge_file"),
    }
)
"""Flags of Megatron-LM that SwissArmyTransformer lacks, unlike those above (NVIDIA's
megatron/arguments.py, in microsoft/Megatron-DeepSpeed)."""
_OPENRLHF: Final = re.compile(r"(?:\A|/)openrlhf([./])cli\1train_(sft|dpo|rm|ppo_ray)(?:\.py)?\Z")
_OF_OPENRLHF: Final = {
    "sft": "openrlhf",
    "dpo": "openrlhf",
    "rm": "openrlhf-rm",
    "ppo_ray": "openrlhf-ppo",
}
"""openrlhf 0.9.10 to 0.11.2: its modules, or their files."""
_SD_SCRIPTS: Final = re.compile(
    r"(?:\A|/)(?:(?:sdxl_|sd3_|flux_|lumina_|anima_|hunyuan_image_)?train_network|train_db|fine_tune|"
    r"(?:sdxl|sd3|flux|lumina|anima)_train|(?:sdxl_)?train_textual_inversion(?:_XTI)?|"
    r"(?:sdxl_|flux_)?train_control_net(?:_lllite(?:_old)?)?)\.py\Z"
)
"""Training scripts of kohya-ss/sd-scripts; its train_controlnet.py has the name of one of
diffusers' scripts."""
_SD_MARKS: Final = frozenset(
    {
        *("config_file", "dataset_config", "train_data_dir", "network_module", "output_name"),
        *("in_json", "max_data_loader_n_workers", "save_model_as", "save_every_n_epochs"),
    }
)
"""Flags of these scripts; every command has one of them (library/train_util.py, config_util.py)."""
_MUSUBI: Final = re.compile(
    r"(?:\A|/)(?:flux_2|flux_kontext|fpack|hidream_o1|hv|hv_1_5|ideogram4|kandinsky5|krea2|qwen_image|"
    r"wan|zimage)_train(?:_network(?:_self_flow)?)?\.py\Z"
)
"""Training scripts of kohya-ss/musubi-tuner."""
_MUSUBI_MARKS: Final = frozenset({"config_file", "dataset_config", "dit", "network_module"})
"""Every command has one of these flags (training/trainer_base.py `_validate_args_and_init`)."""
_OF_KOHYA: Final = (
    ("sd-scripts", _SD_SCRIPTS, _SD_MARKS),
    ("musubi-tuner", _MUSUBI, _MUSUBI_MARKS),
)
OVER_A_FILE: Final = "verl-over"
"""The reader of overrides that are composed over another config than their program's own."""
SCRIPTS: Final = (
    *("diffusers", "llama-cookbook", "alpaca-lora", "sat", "openrlhf", "openrlhf-rm"),
    *("openrlhf-ppo", OVER_A_FILE),
)
"""Programs whose flags rules read as written, without a table."""
_FEW: Final = 2
OF_EXAMPLES: Final = re.compile(
    r"(?:\A|/)run_(?:clm|mlm|plm|fim|glue|xnli|classification|ner|qa|qa_beam_search|seq2seq_qa|swag|"
    r"summarization|translation|speech_recognition_(?:ctc|seq2seq)|audio_classification|"
    r"image_classification|semantic_segmentation|mae|mim)\.py\Z"
)
"""transformers 4.40.2 to 5.23.0 examples/pytorch: scripts on the Trainer."""
_OF_MAKERS: Final = re.compile(
    r"(?:\A|/)(?:llava/train/train(?:_mem|_xformers)?|fastchat/train/train(?:_mem|_lora|_xformers)?|"
    r"internvl_chat_(?:finetune|pretrain)|qwenvl/train/train_qwen|run_(?:sft|dpo|orpo|cpt)|"
    r"qlora)\.py\Z"
)
"""haotian-liu/LLaVA c121f04, lm-sys/FastChat 0e6d3e4, OpenGVLab/InternVL 2410d1d, QwenLM/Qwen3-VL
9658872, huggingface/alignment-handbook and artidoro/qlora 00e5ad2: scripts that pass their flags to
TrainingArguments."""
_SWIFT: Final = re.compile(r"(\A|/)swift/cli/(sft|rlhf)\.py\Z")
"""ms-swift 4.0.4 to 4.6.0 cli/main.py `ROUTE_MAPPING`: what `swift sft` starts, by its file."""
_OWN_LOOP: Final = re.compile(r"_no_trainer\.py\Z|(\A|/)(swift[/.]cli|open_instruct)[/.]")
"""Programs with their own training loop or defaults that share some of the flags: example scripts
of transformers, ms-swift (ms-swift 3.0 swift/llm/argument), and Open Instruct with its own losses
(allenai/open-instruct open_instruct/dpo_utils.py)."""
_SERVES: Final = re.compile(r"\Atrl\b.*\bvllm[-_]serve\b")
"""TRL's server trains nothing (trl 0.16 to 1.16.0 scripts/vllm_serve.py)."""
OWN_ENGINE: Final = frozenset(
    {"deepspeed", "deepspeed_config", "deepspeed_mpi", "zero_stage", "offload"}
)
"""Flags of scripts that start DeepSpeed's engine themselves: deepspeed 0.14.5 to 0.19.8
__init__.py `_add_core_arguments`, where `--deepspeed` takes no value; DeepSpeedExamples
DeepSpeed-Chat."""

_FLAGS: Final[Mapping[str, str]] = {
    "deepspeed": "deepspeed",
    "deepspeed_config": "deepspeed",
    "deepspeed_config_file": "deepspeed",
    "ds_config": "deepspeed",
    "data_backend_config": "simpletuner",
    "accelerate_config": "accelerate",
}
_OF_DIALECT: Final[Mapping[str, Mapping[str, str]]] = {
    "trl": {"config": "trl"},
    **{
        name: dict.fromkeys(("config_file", "dataset_config"), name)
        for name in ("sd-scripts", "musubi-tuner")
    },
}
_FILE: Final = re.compile(r"[^\0]+\.(json|ya?ml|toml|env)", re.IGNORECASE)


def dialect_of(program: str, node: Node) -> str | None:
    """The program of the flags: by the started program, else by their names.

    `script`: those of an unknown program, even if some have known names.
    """
    keys = set(node.fields or ())
    if (started := _by_program(program, keys)) is not None:
        return started
    if _EXAMPLES.search(program):
        return "diffusers"
    if _COOKBOOK.search(program) and _is_cookbook(keys):
        return "llama-cookbook"
    if _ALPACA.search(program) and "base_model" in keys and keys & _ALPACA_MARKS:
        return "alpaca-lora"
    if len(keys & _SAT_MARKS) > _FEW and not keys & _MEGATRON_MARKS:
        return "sat"
    found = (name for name, fewest, marks in _MARKS if len(keys & marks) >= fewest)
    return next(found, "huggingface" if is_of_trainers(program, node) else None)


def _by_program(program: str, keys: set[str]) -> str | None:
    """The program of the flags by the program's name, if that or a few flags identify it."""
    if _SERVES.search(program):
        return OWN
    first = program.partition(" ")[0].partition(".")[0]
    if first in _PROGRAMS:
        return _PROGRAMS[first]
    if _SWIFT.search(program):
        return "ms-swift"
    if _OWN_LOOP.search(program):
        return OWN
    if trains := _OPENRLHF.search(program):
        return _OF_OPENRLHF[trains[2]]
    kohya = (name for name, own, marks in _OF_KOHYA if own.search(program) and keys & marks)
    return next(kohya, None)


def _is_cookbook(keys: set[str]) -> bool:
    """Whether flags are llama-cookbook's: by two marks, or by its own flag for the model."""
    return len(keys & _COOKBOOK_MARKS) > 1 or ("model_name" in keys and keys <= _COOKBOOK_FEW)


def is_of_trainers(program: str, node: Node) -> bool:
    """Whether a script is known to read the trainer's fields, however few of its flags are those.

    Copies of the examples that start DeepSpeed's engine have `--deepspeed` without a value.
    """
    fields = node.fields or {}
    switch = fields.get("deepspeed")
    starts = switch is not None and switch.value is True and "deepspeed_config" in fields
    is_example = OF_EXAMPLES.search(program) is not None and not starts
    return is_example or _OF_MAKERS.search(program) is not None


def starts_engine(node: Node) -> bool:
    """Whether flags belong to a script that starts DeepSpeed's engine without a trainer."""
    fields = node.fields or {}
    switch = fields.get("deepspeed")
    if switch is not None and switch.value is not True:
        return False
    return bool(OWN_ENGINE & set(fields))


def flag_references(dialect: str | None, node: Node) -> tuple[Reference, ...]:
    """The files that a trainer's flags name."""
    readers = {**_FLAGS, **_OF_DIALECT.get(dialect or "", {})}
    return tuple(_named(node, readers))


def launcher_references(launcher: str, node: Node) -> tuple[Reference, ...]:
    """The files that a launcher's flags name; their path begins with `flags`."""
    readers = {**_FLAGS, "config_file": "accelerate"} if launcher == "accelerate" else {}
    return tuple(
        Reference(("flags", *each.path), each.file, each.reader, each.span)
        for each in _named(node, readers)
    )


def positional_references(
    dialect: str | None, program: str, words: Sequence[tuple[str, Span]]
) -> tuple[Reference, ...]:
    """The file that is a positional argument: `train.py args.yaml`, `axolotl train config.yml`.

    transformers 5.23.0 hf_argparser.py `parse_json_file` and `parse_yaml_file`, which its example
    scripts use for a single word; llamafactory 0.9.5 hparams/parser.py `read_args`; axolotl 0.19.0
    cli/main.py `train`. For GLM-4's scripts it is the third word.
    """
    if GLM4.search(program) and len(words) >= _WORDS_OF_GLM4:
        return tuple(
            Reference((), text, "glm4", span) for text, span in words[2:3] if _FILE.fullmatch(text)
        )
    reader = dialect if dialect in ("llamafactory", "axolotl") else "huggingface"
    return tuple(
        Reference((), text, reader, span) for text, span in words[:1] if _FILE.fullmatch(text)
    )


def _named(node: Node, readers: Mapping[str, str]) -> Iterator[Reference]:
    for key, child in (node.fields or {}).items():
        value = child.value
        if key in readers and isinstance(value, str) and _FILE.fullmatch(value):
            yield Reference((key,), value, readers[key], place(child))
