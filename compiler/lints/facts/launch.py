"""Launch scripts: processes, environment, hosts, and the scripts that receive the flags."""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from math import inf
from typing import Any, Final, NamedTuple

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.shell_references import OF_EXAMPLES
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.mentions import is_same
from tunec.compiler.lints.rule import keys

_PROGRAM: Final = re.compile(r"(?:\A|/)(?:python[\d.]*|torchrun|accelerate|deepspeed)\Z|\.py\Z")

COMMANDS: Final = ("launch:*",)
"""The `reads` of a rule that is checked in every run with a launch command."""


def flags(*names: str) -> tuple[str, ...]:
    """The `reads` of a rule about flags of launchers."""
    return keys("launch", *(f"flags.{name}" for name in names))


def variables(*names: str) -> tuple[str, ...]:
    """The `reads` of a rule about variables that a script sets for the programs it starts."""
    return keys("launch", *(f"environment.{name}" for name in names))


VISIBLE_DEVICES: Final = variables("CUDA_VISIBLE_DEVICES")


def launches(run: LintContext, *launchers: str) -> Iterator[Document]:
    """The script commands that the given launchers start; all commands if none is given."""
    for document in run.of("launch"):
        if not launchers or document.value("launcher") in launchers:
            yield document


def every_launch(run: LintContext, *launchers: str) -> list[Document]:
    """The documents of all launch commands in file order, including those of other runs."""
    every = [each for each in (*run.of("launch"), *run.beside) if each.get("launcher")]
    mine = (e for e in every if not launchers or e.value("launcher") in launchers)
    return sorted(mine, key=lambda each: (each.name, each.found["launcher"].span.line))


def variable(document: Document, name: str) -> Place | None:
    """The place where a script sets an environment variable."""
    return document.get(f"environment.{name}")


def is_unknown(document: Document, key: str) -> bool:
    """Whether a key has a value that is known only when the script runs."""
    return key in document.unknown


def count(place: Place | None) -> int | None:
    """The value as a whole number above zero, else None."""
    value: Any = None if place is None else place.value
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return value if is_whole(value) and value > 0 else None


def is_counted_anew(run: LintContext, counted: Place | None) -> bool:
    """Whether a command overrides the number of processes in accelerate's file.

    A script's command, a command in the README, or a comment beside the number shows that.
    """
    if counted is None or counted.document.kind != "accelerate":
        return False
    lines = counted.document.text.splitlines()[counted.span.line - 1 : counted.span.line]
    is_told = not run.of("launch") and "--num_processes" in run.own.readme
    by_command = (is_unknown(each, "flags.num_processes") for each in every_launch(run))
    return is_told or any(by_command) or any(map(_COUNTED.search, lines))


_COUNTED: Final = re.compile(r"(?i)#.*(?:overrid|overwrit|--num_processes)")


def listed(place: Place | None) -> tuple[str, ...] | None:
    """The devices in a list such as that of CUDA_VISIBLE_DEVICES; None if there is no such list."""
    if place is None or place.value is None:
        return None
    names = [each.strip() for each in str(place.value).split(",")]
    return tuple(each for each in names if each) or None


def per_node(document: Document) -> tuple[int, Place] | None:
    """The number of processes that a command starts on each node, and the place that sets it."""
    place = document.get("per_node")
    number = count(place)
    if number is not None and place is not None:
        return number, place
    place = document.get("processes")
    number, nodes = count(place), count(document.get("nodes")) or 1
    if number is None or place is None or number % nodes:
        return None
    return number // nodes, place


def batch_of(run: LintContext, document: Document) -> Document | None:
    """The `#SBATCH` lines of the same file."""
    return next((each for each in run.of("slurm") if each.name == document.name), None)


class StartedCommands:
    """Pairs each `srun` or `mpirun` with the commands that it may start.

    A starter that names another program starts none. A script may hold hundreds of both, so each
    place is read once.
    """

    def __init__(self, starters: Iterable[Document], inner: Iterable[Document]) -> None:
        """Take the starters, and the commands that they may start."""
        self._starters = [(each, each.name, *_lines_started(each)) for each in starters]
        self._inner = [(each, each.name, _line(each)) for each in inner]

    def starter(self, inner: Document) -> Document | None:
        """The first starter that may start a command."""
        file, line = inner.name, _line(inner)
        found = (s for s, name, a, b in self._starters if name == file and a <= line <= b)
        return next(found, None)

    def inner(self, starter: Document) -> Document | None:
        """The first command that a starter may start."""
        file, (first, last) = starter.name, _lines_started(starter)
        found = (e for e, name, line in self._inner if name == file and first <= line <= last)
        return next(found, None)


def _lines_started(starter: Document) -> tuple[float, float]:
    """The lines of the command that a starter starts: any line if it names no program."""
    script = starter.get("script")
    words = script.value if script is not None and isinstance(script.value, list) else []
    if script is None or not words or not _PROGRAM.search(str(words[0])):
        return -inf, inf
    return script.span.line, script.span.end_line


def _line(document: Document) -> int:
    return document.found["launcher"].span.line


def numbers_nodes_itself(document: Document) -> bool:
    """Whether torchrun's rendezvous assigns the node ranks and ignores --node_rank.

    torch 2.13.0 distributed/run.py: --node_rank is for the static rendezvous.
    """
    return document.value("flags.rdzv_backend", "static") not in ("static", None)


LOCAL: Final = frozenset({"127.0.0.1", "localhost", "0.0.0.0", "::1"})  # noqa: S104  nothing is bound
"""Addresses with which a process connects to its own host; 0.0.0.0 is only for listening."""


def is_autotuned(run: LintContext, document: Document) -> bool:
    """Whether DeepSpeed's autotuner passes on files that it writes itself, each with a stage.

    Then a list holds the values that it tries, and `auto` is filled in: deepspeed 0.14.5 to 0.19.8
    autotuning/autotuner.py `model_info_profile_run`, `tune`, utils.py `get_all_configs`.
    """
    named = (each.get("flags.autotuning") for each in run.of("launch"))
    return document.value("autotuning.enabled") is True or any(each is not None for each in named)


TUNED: Final = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    *("zero_optimization.", "autotuning."),
)
"""Beginnings of the keys that the autotuner reads or fills in."""


class Entry(NamedTuple):
    """One line of a hostfile."""

    host: str
    slots: int | None
    """None if the launcher does not read the line."""
    place: Place
    """The place of the number of slots, or of the line that is not read."""

    def label(self, text: str = "", *, primary: bool = True) -> Label:
        """A label at the entry's place, with the host's name as its path."""
        return Label(text, self.place.span, self.host, primary)


def hostfiles(run: LintContext) -> Iterator[tuple[Document, tuple[Entry, ...]]]:
    """Each hostfile with its lines, in order."""
    for document in run.of("hostfile"):
        yield document, tuple(_entries(document))


def _entries(document: Document) -> Iterator[Entry]:
    for key, line in (document.root.fields or {}).items():
        host = document.value(f"{key}.host")
        at = document.get(f"{key}.slots") or document.get(f"{key}.refused")
        if isinstance(host, str) and at is not None and line.fields is not None:
            yield Entry(host, at.value if isinstance(at.value, int) else None, at)


_PACKAGE: Final = re.compile(r"(?:\A|/)(\w+)/train/\w+\.py\Z")


def packages(run: LintContext, document: Document) -> frozenset[str]:
    """The packages whose scripts receive the flags: `llava` for `llava/train/train.py`."""
    found = map(_PACKAGE.search, run.started.get(document.name, ()))
    return frozenset(each[1] for each in found if each)


def starts_one_of(run: LintContext, document: Document, programs: re.Pattern[str]) -> bool:
    """Whether the file with the flags starts a script whose path matches a pattern."""
    return any(map(programs.search, run.started.get(document.name, ())))


def example_of(run: LintContext, document: Document) -> Place | None:
    """The place where the file with the flags starts an example; None if it starts others."""
    scripts = run.started.get(document.name, {})
    if not scripts or not all(map(OF_EXAMPLES.search, scripts)):
        return None
    return next(iter(scripts.values()))


def starts_an_example(run: LintContext, document: Document) -> bool:
    """Whether the flags are passed to an example of transformers."""
    return document.format == "shell" and example_of(run, document) is not None


_OF_BOTH: Final = frozenset(
    {
        *("add_bos", "add_seed_and_date_to_exp_name", "additional_model_arguments"),
        *("cache_dataset_only", "chat_template_name", "checkpointing_steps", "clip_grad_norm"),
        *("config_name", "dataset_cache_mode", "dataset_config_hash", "dataset_config_name"),
        *("dataset_local_cache_dir", "dataset_mix_dir", "dataset_mixer", "dataset_mixer_list"),
        *("dataset_mixer_list_splits", "dataset_name", "dataset_skip_cache"),
        *("dataset_target_columns", "dataset_transform_fn", "do_not_randomize_output_dir"),
        *("exp_name", "fused_optimizer", "get_tokenizer_fn", "gradient_accumulation_steps"),
        *("gradient_checkpointing", "ground_truths_key", "gs_bucket_path", "hf_entity"),
        *("hf_metadata_dataset", "hf_repo_id", "hf_repo_revision", "hf_repo_url"),
        *("keep_last_n_checkpoints", "learning_rate", "load_balancing_loss"),
        *("load_balancing_weight", "logging_steps", "lora_alpha", "lora_dropout", "lora_rank"),
        *("low_cpu_mem_usage", "lr_scheduler_type", "max_seq_length", "max_train_samples"),
        *("max_train_steps", "model_name_or_path", "model_revision", "num_train_epochs"),
        *("oe_eval_max_length", "oe_eval_tasks", "output_dir", "overwrite_cache"),
        *("overwrite_output_dir", "packing", "per_device_train_batch_size"),
        *("preprocessing_num_workers", "push_to_hub", "reduce_loss", "report_to"),
        *("resume_from_checkpoint", "revision", "run_name", "save_to_hub", "seed"),
        *("sft_messages_key", "sync_each_batch", "timeout", "tokenizer_commit_hash"),
        *("tokenizer_files_hash", "tokenizer_name", "tokenizer_name_or_path"),
        *("tokenizer_revision", "train_file", "trust_remote_code", "try_auto_save_to_beaker"),
        *("try_launch_beaker_eval_jobs", "use_8bit_optimizer", "use_fast", "use_flash_attn"),
        *("use_liger_kernel", "use_lora", "use_qlora", "use_slow_tokenizer", "wandb_entity"),
        *("wandb_project_name", "warmup_ratio", "weight_decay", "with_tracking"),
    }
)
_OF_TUNING: Final = frozenset(
    {
        *("clean_checkpoints_at_end", "final_lr_ratio", "llama2", "save_merged_lora_model"),
        *("sequence_parallel_size", "verbose"),
    }
)
_OF_PREFERENCES: Final = frozenset(
    {
        *("activation_memory_budget", "attn_backend", "attn_implementation", "beta"),
        *("cache_logprobs_only", "cache_mode", "compile_model", "concatenated_forward"),
        *("config_hash", "context_parallel_degree", "dpo_beta", "dpo_gamma_beta_ratio"),
        *("dpo_label_smoothing", "dpo_loss_type", "dpo_use_paged_optimizer", "eval_priority"),
        *("eval_workspace", "fsdp_num_replicas", "fsdp_shard_degree", "gamma_beta_ratio"),
        *("label_smoothing", "local_cache_dir", "loss_type", "max_grad_norm", "mixer_list"),
        *("mixer_list_splits", "num_epochs", "num_replicas", "oe_eval_gpu_multiplier"),
        *("offload_optimizer", "offload_param", "optimizer_kwargs", "optimizer_type"),
        *("pipeline_parallel_degree", "profiling", "send_slack_alerts", "shard_degree"),
        *("skip_cache", "target_columns", "tensor_parallel_degree", "transform_fn"),
        *("use_paged_optimizer", "wandb_project", "zero_hpz_partition_size", "zero_stage"),
    }
)
_STARCODER: Final = frozenset(
    {
        *("model_path", "dataset_name", "subset", "split", "size_valid_set", "streaming"),
        *("shuffle_buffer", "input_column_name", "output_column_name", "seq_length", "max_steps"),
        *("batch_size", "gradient_accumulation_steps", "eos_token_id", "lora_r", "lora_alpha"),
        *("lora_dropout", "learning_rate", "lr_scheduler_type", "num_warmup_steps"),
        *("weight_decay", "local_rank", "no_fp16", "bf16", "no_gradient_checkpointing", "seed"),
        *("num_workers", "output_dir", "log_freq", "eval_freq", "save_freq"),
    }
)
OF_STARCODER: Final = re.compile(r"(?:\A|/)finetune/finetune\.py\Z")
"""bigcode-project/starcoder d72c7fe finetune/finetune.py `get_args`."""
OF_OPEN_INSTRUCT: Final = re.compile(
    r"(?:\A|/)open_instruct/(?:finetune|dpo_tune(?:_cache)?)\.py\Z"
)
"""allenai/open-instruct, all revisions up to e6c3044: `FlatArguments`, `DPOExperimentConfig`,
`TokenizerConfig`, and the argparse flags that preceded them."""

OWN_PARSERS: Final[Mapping[str, tuple[re.Pattern[str], frozenset[str]]]] = {
    "Open Instruct": (re.compile(r"(?:\A|/)open_instruct/finetune\.py\Z"), _OF_BOTH | _OF_TUNING),
    "Open Instruct, for preferences,": (
        re.compile(r"(?:\A|/)open_instruct/dpo_tune(?:_cache)?\.py\Z"),
        _OF_BOTH | _OF_PREFERENCES,
    ),
    "StarCoder": (OF_STARCODER, _STARCODER),
}
"""Scripts by path pattern, with the flags of their parsers."""

OF_TRL: Final = re.compile(r"(?:\A|/)(?:examples|trl)/scripts/(?:sft|dpo)\.py\Z")
BESIDE_TRL: Final = frozenset(
    {
        *("attn_implementation", "bnb_4bit_quant_storage", "bnb_4bit_quant_type", "config"),
        *("dataset_config", "dataset_name", "dataset_streaming", "dataset_test_split"),
        *("dataset_train_split", "datasets", "dtype", "generate_during_eval"),
        *("gradient_checkpointing_use_reentrant", "ignore_bias_buffers", "load_in_4bit"),
        *("load_in_8bit", "lora_alpha", "lora_dropout", "lora_modules_to_save", "lora_r"),
        *("lora_target_modules", "lora_target_parameters", "lora_task_type", "model_name_or_path"),
        *("model_revision", "sanity_check", "streaming", "test_split_size", "torch_dtype"),
        *("trust_remote_code", "use_bnb_nested_quant", "use_dora", "use_peft", "use_rslora"),
        "env",
    }
)
"""trl 0.10.1, 0.27.2, 1.16.0 ModelConfig, ScriptArguments, DatasetMixtureConfig,
DPOScriptArguments: what TRL's own scripts read beside its config; `config`, `env`: TrlParser."""


_GIVEN: Final = re.compile(r"""(?m)^[ \t]*(?:export[ \t]+)?(\w+)=["']?([\w-]+)["']?[ \t]*$""")
"""A variable that is given one word."""
_GOES: Final = re.compile(
    r"(?m)^[ \t]*(?:cd|pushd)[ \t]+[\"']?(?:/|~/)(?:[\w.-]+/)*([\w.-]+)/?(?![\w/$])"
)
"""The name of a folder that a script changes to by its whole path."""
_COUNTS: Final = frozenset({"processes", "per_node"})


def placeholders(script: Document) -> Iterator[str]:
    """The words that a script gives to variables of the same name, for its user to replace."""
    if script.format == "shell":
        yield from (each[2] for each in _GIVEN.finditer(script.text) if is_same(each[1], each[2]))


def leaves(script: Document, here: Set[str]) -> bool:
    """Whether a script changes at last to a folder whose name no folder here has."""
    folders = _GOES.findall(script.text) if script.format == "shell" else []
    return bool(folders) and folders[-1] not in here


def starts_several(launch: Document, *, is_told: bool) -> bool:
    """Whether a launcher starts several processes; `is_told`: only if a flag of it says so."""
    if is_told and not _COUNTS & {*launch.found, *launch.unknown}:
        return False
    return (per_node(launch) or (0,))[0] != 1
