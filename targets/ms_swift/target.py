"""The ms-swift target: one YAML for `swift sft` or `swift rlhf`, and DeepSpeed's file beside it.

The YAML contains ms-swift's own arguments and those of the Trainer; each key becomes a flag.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.counting import Counting, Epoch
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.target import Cannot, Dialect, File, Json, Target, on_deepspeed
from tunec.schemas.data_paths import Media, Record
from tunec.schemas.frozen import replace
from tunec.schemas.spec import Spec
from tunec.targets.accelerate.packages import ACCELERATE
from tunec.targets.accelerate.packages import PACKAGE as ACCELERATE_PACKAGE
from tunec.targets.deepspeed.config import DEEPSPEED, ds_config
from tunec.targets.deepspeed.reader import PACKAGE as DEEPSPEED_PACKAGE
from tunec.targets.deepspeed.reader import TRAINER as READER
from tunec.targets.huggingface import counting as trainer
from tunec.targets.huggingface.packages import PEFT, PEFT_RELEASES, TRANSFORMERS
from tunec.targets.huggingface.target import CANNOT
from tunec.targets.huggingface.training import ADAMW
from tunec.targets.ms_swift.adapter import ADAPTER, EVERY_LAYER, QUANTIZATION
from tunec.targets.ms_swift.arithmetic import CHECKPOINTING, PRECISION
from tunec.targets.ms_swift.fsdp import FSDP
from tunec.targets.ms_swift.migration import ANSWERS, CARRIES, LEAVES, TAKES, foreign
from tunec.targets.ms_swift.model import DATA, MODEL, OBJECTIVE
from tunec.targets.ms_swift.models import imports
from tunec.targets.ms_swift.packages import (
    PACKAGE,
    RELEASES,
    SUPPORTED,
    TRAINER,
    by_rlhf,
    companions,
    installed_releases,
    ranges,
)
from tunec.targets.ms_swift.refusals import REFUSALS
from tunec.targets.ms_swift.training import TRAINING, accumulated
from tunec.targets.read_only import schema_of
from tunec.targets.rows import NO_DROPOUT_FOR_PAIRS, has_pairs, is_rewarded
from tunec.targets.scripts.launchers import without_rank_flag
from tunec.targets.scripts.refusals import refusing
from tunec.targets.trainers import (
    beside_fsdp_and_rewards,
    evaluating_by_loss,
    other_releases,
    own_columns,
    reading_formats,
    taking_the_tokenizers_template,
)

_OWN: Final = frozenset(
    {
        *("tuner_type", "split_dataset_ratio", "model_author", "target_regex"),
        *("freeze_vit", "freeze_aligner", "freeze_llm", "rlhf_type", "quant_bits", "quant_method"),
        *("loss_scale", "dataset_num_proc", "attn_impl", "use_hf", "val_dataset", "lora_bias"),
        *("truncation_strategy", "padding_free", "lazy_tokenize", "packing_length", "vit_lr"),
        *("vit_gradient_checkpointing", "aligner_lr", "add_version", "agent_template"),
    }
)
_MEGATRON_KEYS: Final = frozenset(
    {
        *("mcore_model", "mcore_adapter", "micro_batch_size", "global_batch_size", "train_iters"),
        *("tensor_model_parallel_size", "pipeline_model_parallel_size", "recompute_granularity"),
        *("expert_model_parallel_size", "context_parallel_size"),
    }
)
"""Keys of `megatron sft`, another program, that files of `swift sft` do not have: ms-swift 4.0.4 to
4.6.0 megatron/arguments/megatron_args.py."""
_OF_OTHERS: Final = _MEGATRON_KEYS | {"base_model", "model_name_or_path"}


def _is_ms_swift(document: Json) -> bool:
    """Whether a document has two keys that only this parser has, or one with model and data set."""
    if not isinstance(document, dict) or _OF_OTHERS & {*document}:
        return False
    own = len(_OWN & {*document})
    return own > 1 or (own > 0 and {"model", "dataset"} <= {*document})


_ANSWERS: Final = (
    *("response", "answer", "output", "targets", "target", "answer_key", "answers", "solution"),
    *("text", "completion", "content"),
)


def records(plan: Plan) -> tuple[Record, ...]:
    """The accepted records.

    A chat under one of three names, or an answer under one of many; for pairs both answers as
    texts. Prompts also have one of many names. ms-swift 4.0.4 to 4.6.0 dataset/preprocessor/core.py
    `AutoPreprocessor`.
    """
    if has_pairs(plan):
        texts = Record(("prompt", "chosen", "rejected"), "text")
        return (texts, Record(("messages", "rejected_response")))
    if is_rewarded(plan):
        prompts = ("query", "prompt", "input", "instruction", "question", "problem")
        return (Record(("messages",), "chat"), *(Record((each,), "text") for each in prompts))
    chats = (Record((each,)) for each in ("messages", "conversations", "conversation"))
    return (*chats, *(Record((each,), "text") for each in _ANSWERS))


_releases: Final = other_releases(PACKAGE, ranges, installed_releases)
_own_columns: Final = own_columns(
    has_pairs, "ms-swift reads", "ms-swift 4.0.4 to 4.6.0 dataset/preprocessor/core.py"
)


def _check(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
    yield from _releases(plan, dialect)
    yield from _own_columns(plan, dialect)


CONFIG: Final = File(
    name="ms-swift.yaml",
    format="yaml",
    entries=(
        *MODEL,
        *OBJECTIVE,
        *DATA,
        ANSWERS.row,
        *ADAPTER,
        *QUANTIZATION,
        *PRECISION,
        *CHECKPOINTING,
        *FSDP,
        *TRAINING,
    ),
    recognise=_is_ms_swift,
    schema=schema_of(PACKAGE, RELEASES, PACKAGE),
    check=_check,
    phrases=(EVERY_LAYER, ADAMW),
    foreign=foreign,
    carries=CARRIES,
    takes=TAKES,
    leaves=LEAVES,
    defaults=ANSWERS.does,
    names=("deepspeed",),
    reads_powers=True,
)


# ── what no key says ─────────────────────────────────────────────────────────────────────────────

_MEGATRON: Final = (
    "only `megatron sft` splits a model; it reads other keys, trains by Megatron-Core in its own "
    "form of the weights, and is no part of these files"
)
_CANNOT: Final = {
    **CANNOT,
    **beside_fsdp_and_rewards(),
    **evaluating_by_loss("ms-swift"),
    "objective.kind": Cannot(
        "its `ppo` takes a reward model and no function, and its critic starts as that model; "
        "other methods are no objective of a plan",
        True,
        ("sft", "dpo", "grpo", "reward"),
    ),
    "model.kind": Cannot(
        "its classifiers (task_type seq_cls) are not planned: the target huggingface writes the "
        "arguments of a classifier",
        True,
        ("causal-lm", "vision-language"),
    ),
    "model.trust_remote_code": Cannot("it is on in every run"),
    **taking_the_tokenizers_template(
        "it has templates of its own, by name, and one for each model that it knows"
    ),
    "adapter.dropout": NO_DROPOUT_FOR_PAIRS,
    "loss.path": Cannot("it computes all logits, or Liger fuses the loss", True, ("full",)),
    **reading_formats(
        "it knows records by their columns, and puts its chat template around every text",
        "sharegpt",
        "alpaca",
        "prompt-completion",
    ),
    "data.images": Cannot("the data has them, and a template puts them before the model"),
    "data.sequence": Cannot("max_length counts the tokens of images too"),
    "parallel.engine": Cannot("of several processes torch makes DDP"),
    "parallel.tensor": Cannot(_MEGATRON, True, (1,)),
    "parallel.sequence": Cannot("no account is kept of sequences that are shared", True, (1,)),
}


def _needs(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Pin attention that keeps packed samples apart, and a launcher without a rank flag.

    ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py `_check_padding_free`; cli/main.py `cli_main`.
    """
    packs = spec.data.packing and spec.attention is None
    kernel = {"attention.implementation": "flash_attention_2"} if packs else {}
    return {**kernel, **_of_rewards(spec), **without_rank_flag(spec, draft)}


def _of_rewards(spec: Spec) -> Mapping[str, Any]:
    """Pin its default loss, and no prefetching at ZeRO stage 3.

    ms-swift 4.0.4 to 4.6.0 arguments/rlhf_args.py `_set_default`; rlhf_trainers/arguments.py
    `GRPOConfig.__post_init__`: stage3_prefetch_bucket_size.
    """
    asked = spec.objective.grpo
    if asked is None:
        return {}
    return {"zero.prefetch_bucket": 0, **({} if asked.loss else {"objective.loss": "grpo"})}


_WITHOUT_FLAG: Final = Version("4.1")
"""The first release that takes the file as its first word: cli/main.py."""


def entry(plan: Plan, dialect: Dialect) -> tuple[str, ...]:
    """The module of the command line, which turns the file into flags and starts its own script.

    Started by torchrun, each process starts one, and reads its rank from the variables. ms-swift
    4.0.4 cli/main.py `prepare_config_args`, 4.1.3 to 4.6.0 `parse_yaml_args`.
    """
    verb = "rlhf" if by_rlhf(plan) else "sft"
    flag = () if dialect[PACKAGE] >= _WITHOUT_FLAG else ("--config",)
    return ("swift.cli.main", verb, *flag, f"{PACKAGE}/{CONFIG.name}")


def counting(dialect: Dialect, passed: Mapping[str, Any]) -> Counting:
    """Steps as the Trainer counts them, of the samples that divide over all processes.

    They are packed at random. ms-swift 4.0.4 to 4.6.0 dataloader/shard.py `BatchSamplerShard`:
    total_samples

    world_size; dataset/packing.py `calculate_matched_group`.
    """
    usual = trainer.counting(dialect, passed).steps

    def steps(epoch: Epoch, epochs: float) -> int:
        dealt = epoch.rows // epoch.processes * epoch.processes
        return usual(replace(epoch, rows=dealt), epochs)

    return Counting(f"ms-swift {dialect[PACKAGE]}", steps, "buffered")


TARGET: Final = Target(
    name="ms-swift",
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=(CONFIG, ds_config(READER, when=on_deepspeed)),
    cannot=_CANNOT,
    needs=_needs,
    check=refusing("ms-swift", REFUSALS),
    beside={
        TRAINER: TRANSFORMERS,
        PEFT: PEFT_RELEASES,
        ACCELERATE_PACKAGE: ACCELERATE,
        DEEPSPEED_PACKAGE: DEEPSPEED,
    },
    companions=companions,
    imports=imports,
    derives=accumulated,
    media=Media(variable="ROOT_IMAGE_DIR"),
    entry=entry,
    resumes="--resume_from_checkpoint={}",
    run_by="trl",
    counting=counting,
    records=records,
    verify="tunec.targets.ms_swift.verify",
)
"""The target for `swift sft` and `swift rlhf`."""
