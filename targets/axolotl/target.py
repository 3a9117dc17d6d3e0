"""The axolotl target: one YAML for `axolotl train`, with DeepSpeed's file beside it."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.counting import (
    Counting,
    Epoch,
    count_whole_and_partial,
    rise_rounded_up,
)
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.passes import defaults
from tunec.compiler.target import Cannot, Dialect, File, Json, Target, on_deepspeed
from tunec.schemas.spec import Spec
from tunec.schemas.terms import ObjectiveKind
from tunec.targets.accelerate.packages import ACCELERATE
from tunec.targets.accelerate.packages import PACKAGE as ACCELERATE_PACKAGE
from tunec.targets.axolotl.adapter import ADAPTER, EVERY_LAYER, QUANTIZATION
from tunec.targets.axolotl.arithmetic import BY_DEVICE, CHECKPOINTING, PARALLEL, PRECISION
from tunec.targets.axolotl.data import CUTS_PAIRS, DATA, forms, records
from tunec.targets.axolotl.from_trl import TAKES
from tunec.targets.axolotl.frozen import FROZEN
from tunec.targets.axolotl.fsdp import FSDP
from tunec.targets.axolotl.leaves import LEAVES
from tunec.targets.axolotl.migration import ANSWERS, CARRIES, unsaid
from tunec.targets.axolotl.model import MODEL, OBJECTIVE
from tunec.targets.axolotl.packages import (
    PACKAGE,
    RELEASES,
    SCHEMAS,
    SUPPORTED,
    companions,
    installed,
    installed_releases,
)
from tunec.targets.axolotl.refusals import REFUSALS
from tunec.targets.axolotl.training import (
    BATCH,
    OPTIMIZER,
    RUNTIME,
    SCHEDULE,
    SHORTEST_WARMUP,
    TIMES,
)
from tunec.targets.chat_template import plain_template
from tunec.targets.deepspeed.config import DEEPSPEED, ds_config
from tunec.targets.deepspeed.reader import PACKAGE as DEEPSPEED_PACKAGE
from tunec.targets.deepspeed.reader import TRAINER
from tunec.targets.huggingface.packages import PEFT, PEFT_RELEASES, TRANSFORMERS
from tunec.targets.huggingface.target import CANNOT
from tunec.targets.huggingface.training import optimizer_packages
from tunec.targets.read_only import schema_of
from tunec.targets.rows import NO_DROPOUT_FOR_PAIRS
from tunec.targets.scripts.refusals import refusing
from tunec.targets.trainers import beside_fsdp_and_rewards, evaluating_by_loss


def _steps(epoch: Epoch, epochs: float) -> int:
    """The number of steps. All epochs are counted together, and the last step may be partial.

    axolotl 0.13.2 to 0.19.0 utils/trainer.py `calculate_total_num_steps`. If the model answers
    prompts, the Trainer counts: common/datasets.py `load_preference_datasets`.
    """
    if epoch.answers:
        return count_whole_and_partial(epoch, epochs)
    return math.ceil(epoch.rows * epochs / (epoch.micro * epoch.accumulation * epoch.processes))


def _rise(steps: int, share: float, objective: ObjectiveKind) -> int:
    """The steps of a warm-up: rounded down, and two instead of one.

    axolotl 0.13.2 to 0.19.0 core/builders/base.py `_configure_warmup_and_logging`. If the model
    answers prompts, the Trainer counts.
    """
    if objective == "grpo":
        return rise_rounded_up(steps, share, objective)
    down = int(share * steps)
    return SHORTEST_WARMUP if down == 1 else down


def counting(dialect: Dialect, _: Mapping[str, Any]) -> Counting:
    """Axolotl's counting. Its packing fills bins in a random order, so the rows are an estimate.

    axolotl 0.13.2 to 0.19.0 utils/samplers/multipack.py `MultipackBatchSampler`. Samples without an
    answer before the cut are dropped: utils/trainer.py `process_datasets_for_packing`, and pairs:
    utils/data/rl.py `_load_split`.
    """
    release = dialect[PACKAGE]
    return Counting(
        f"axolotl {release}",
        _steps,
        "multipack",
        rise=_rise,
        leaves_out=() if release >= Version(CUTS_PAIRS) else ("dpo",),
        leaves_out_unanswered=("sft", "dpo"),
    )


_MARKS: Final = frozenset(
    {
        *("micro_batch_size", "num_epochs", "sequence_len", "sample_packing", "datasets"),
        *("adapter", "lora_target_linear", "val_set_size", "dataset_prepared_path", "plugins"),
        *("pretraining_dataset", "test_datasets", "rl", "flash_attention", "lora_model_dir"),
    }
)


_OWN: Final = frozenset(
    {
        *("sequence_len", "sample_packing", "eval_sample_packing", "pad_to_sequence_len"),
        *("lora_target_linear", "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"),
        *("evals_per_epoch", "saves_per_epoch", "dataset_prepared_path", "unfrozen_parameters"),
        *("sdp_attention", "xformers_attention", "pretraining_dataset", "test_datasets"),
        *("sequence_parallel_degree", "eval_table_size"),
    }
)
"""Keys that only Axolotl has."""
_ALSO: Final = frozenset(
    {
        *("adapter", "load_in_8bit", "load_in_4bit", "micro_batch_size", "val_set_size", "rl"),
        *("num_epochs", "fsdp_config", "special_tokens", "deepspeed", "trl", "datasets"),
        *("gradient_accumulation_steps", "lora_r", "lr_scheduler", "chat_template"),
        *("flash_attention", "early_stopping_patience", "train_on_inputs"),
    }
)
"""Keys that other trainers have too."""
_OF_OTHERS: Final = frozenset({"model", "model_name"})
"""Keys by which custom programs name a model."""


def _is_axolotl(document: Json) -> bool:
    """Whether a document is Axolotl's, with `base_model` or as a part without it.

    A part has two of Axolotl's own keys, or one beside two that other trainers share.
    """
    if not isinstance(document, dict):
        return False
    own = len(_OWN & set(document))
    is_part = own > 1 or (own > 0 and len(_ALSO & set(document)) > 1)
    if "base_model" in document:
        return is_part or bool(_MARKS & set(document))
    return is_part and not _OF_OTHERS & set(document)


def _other_releases(_: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
    """Warn of packages for which a spec names another release than Axolotl installs."""
    for name, wanted in installed_releases(dialect[PACKAGE]).items():
        named = dialect.get(name)
        if named is not None and str(named) != wanted:
            yield Diagnostic(
                "software-of-another-season",
                "warning",
                f"axolotl {dialect[PACKAGE]} installs {name} {wanted}, and this run has {named}",
                notes=("axolotl requirements.txt, from 0.17 the wheel's `Requires-Dist`",),
                help=f"leave {name} out of `software`, or name {wanted}",
            )


CONFIG: Final = File(
    name="axolotl.yaml",
    format="yaml",
    entries=(
        *MODEL,
        *DATA,
        ANSWERS.row,
        *OBJECTIVE,
        *ADAPTER,
        *FROZEN,
        *QUANTIZATION,
        *PRECISION,
        *CHECKPOINTING,
        *PARALLEL,
        *FSDP,
        *BATCH,
        *OPTIMIZER,
        *SCHEDULE,
        *RUNTIME,
    ),
    recognise=_is_axolotl,
    schema=schema_of("axolotl", SCHEMAS, PACKAGE),
    check=_other_releases,
    filled=frozenset(),
    phrases=(EVERY_LAYER, TIMES, *BY_DEVICE),
    foreign=forms,
    reads_powers=True,
    carries=CARRIES,
    takes=TAKES,
    leaves=LEAVES,
    defaults=unsaid,
    names=("deepspeed",),
)


# ── what no key says ─────────────────────────────────────────────────────────────────────────────

_CANNOT: Final = {
    **CANNOT,
    **beside_fsdp_and_rewards(),
    **evaluating_by_loss("Axolotl"),
    "objective.kind": Cannot(
        "it trains no critic, and other methods are no objective of a plan",
        True,
        ("sft", "dpo", "grpo", "reward"),
    ),
    "generation.prompt": Cannot("from 0.15 on the data bounds the prompts"),
    "generation.offload_training": Cannot(
        "weights and optimizer states stay on the devices while vLLM writes", True, (False,)
    ),
    "model.kind": Cannot(
        "Axolotl trains models that write text", True, ("causal-lm", "vision-language")
    ),
    "adapter.dropout": NO_DROPOUT_FOR_PAIRS,
    "adapter.frozen": Cannot("a row says it"),
    "loss.path": Cannot(
        "TRL's trainers of pairs and answers compute all logits at once", True, ("full",)
    ),
    "model.trust_remote_code": Cannot("a row says it"),
    "schedule.warmup_share": Cannot(
        "it is given the steps of a warm-up, where the run's are given"
    ),
    "data.images": Cannot("the data has them, and the model's processor cuts them"),
    "parallel.engine": Cannot("of several processes torch makes DDP"),
    "parallel.sequence": Cannot("a row says it"),
    "activation_checkpointing.mode": Cannot("another row says it"),
}


def _needs(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """The pins for FSDP, for attention that keeps a full model out of fp32, and for groups."""
    second = _fsdp(spec, draft) if spec.engine == "fsdp" else {}
    narrow = {"attention.implementation": "flash_attention_2"} if _widens(spec, draft) else {}
    return {**second, **narrow, **_groups(spec, draft)}


def _groups(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Pin a step in which each process has whole groups, if the usual step has less.

    axolotl 0.17.0 to 0.19.0 utils/schemas/validation.py `check_grpo_batch_size_divisibility`.
    """
    asked = spec.objective.grpo
    if (
        asked is None
        or spec.batch.global_ is not None
        or not {"data", "devices"} <= {*draft.groups}
    ):
        return {}
    least = asked.samples * draft.devices.nodes * draft.devices.per_node
    tokens = defaults.BATCH_TOKENS.value // max(draft.data.sequence, 1)
    usual = min(defaults.BATCH.value, tokens)
    return {"batch.global": least} if least > usual else {}


def _fsdp(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Pin FSDP 2, because version 1 is deprecated, and sharded checkpoints for adapters.

    axolotl 0.19.0 utils/schemas/validation.py `check_fsdp2_cpu_ram_efficient_loading_w_4bit`,
    0.13.2 to 0.19.0 `check_gpt_oss_fsdp_loading`; accelerate 1.13.0 utils/fsdp_utils.py
    `_get_model_state_dict`: PEFT's own gathers nothing.
    """
    sharded = {} if spec.method.full else {"fsdp.state_dict": "sharded"}
    is_mxfp4 = "model" in draft.groups and draft.model.published == "mxfp4"
    alone = {"fsdp.efficient_loading": False} if spec.method.qlora or is_mxfp4 else {}
    return {"fsdp.version": 2, **sharded, **alone}


_WITHOUT_FLASH: Final = ("gpt_oss",)
"""Families whose class does not accept a flash-attn 2 kernel: transformers 4.57 to 5.16
models/gpt_oss/modeling_gpt_oss.py `_compatible_flash_implementations`."""


def _widens(spec: Spec, draft: Draft) -> bool:
    """Whether embeddings, head and norms would become fp32 with the usual attention.

    axolotl 0.13.2 to 0.19.0 loaders/model.py `_configure_embedding_dtypes`: that happens with
    neither an adapter nor an engine, if attention is sdpa or eager.
    """
    if not {"model", "precision", "devices"} <= draft.groups.keys() or spec.attention is not None:
        return False
    if draft.model.family in _WITHOUT_FLASH:
        return False
    is_narrow = draft.precision.compute == "bf16" and draft.devices.vendor == "nvidia"
    return is_narrow and bool(spec.method.full) and spec.engine not in ("deepspeed", "fsdp")


def entry(_: Plan, __: Dialect) -> tuple[str, ...]:
    """The module and its file, which `axolotl train` starts with a launcher.

    axolotl 0.13.2 to 0.19.0 cli/utils/train.py `_launch_accelerate_training`.
    """
    return ("axolotl.cli.train", f"{PACKAGE}/{CONFIG.name}")


TARGET: Final = Target(
    name="axolotl",
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=(CONFIG, plain_template(), ds_config(TRAINER, when=on_deepspeed)),
    cannot=_CANNOT,
    needs=_needs,
    check=refusing("axolotl", REFUSALS),
    beside={
        "transformers": TRANSFORMERS,
        PEFT: PEFT_RELEASES,
        ACCELERATE_PACKAGE: ACCELERATE,
        DEEPSPEED_PACKAGE: DEEPSPEED,
    },
    companions=companions,
    imports=optimizer_packages,
    installs=installed,
    entry=entry,
    resumes="--resume_from_checkpoint={}",
    run_by="trl",
    counting=counting,
    records=records,
    template_key=lambda *_: "chat_template",
    verify="tunec.targets.axolotl.verify",
)
"""The files that `axolotl train` reads."""
