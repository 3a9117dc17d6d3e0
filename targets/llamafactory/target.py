"""The llamafactory target: one YAML for its own launcher, and the files that it names.

The YAML contains LLaMA-Factory's own arguments and those of the Trainer.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.counting import Counting
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.target import Cannot, Dialect, Entry, File, Json, Target, on_deepspeed, same
from tunec.schemas.data_paths import Media
from tunec.schemas.frozen import replace
from tunec.schemas.spec import Spec
from tunec.targets.accelerate.packages import ACCELERATE
from tunec.targets.accelerate.packages import PACKAGE as ACCELERATE_PACKAGE
from tunec.targets.deepspeed.config import DEEPSPEED, ds_config
from tunec.targets.deepspeed.reader import PACKAGE as DEEPSPEED_PACKAGE
from tunec.targets.deepspeed.reader import TRAINER as READER
from tunec.targets.huggingface import counting as trainer
from tunec.targets.huggingface import schedule, training
from tunec.targets.huggingface.fsdp import FSDP
from tunec.targets.huggingface.packages import PEFT, PEFT_RELEASES, TRANSFORMERS
from tunec.targets.huggingface.predictions import PREDICTIONS
from tunec.targets.huggingface.target import CANNOT
from tunec.targets.huggingface.training import ADAMW, optimizer_packages
from tunec.targets.llamafactory.adapter import ADAPTER, EVERY_LAYER, QUANTIZATION
from tunec.targets.llamafactory.arithmetic import CHECKPOINTING, PRECISION
from tunec.targets.llamafactory.datasets import DATASET_INFO, records
from tunec.targets.llamafactory.migration import ANSWERS, CARRIES, LEAVES, TAKES, does
from tunec.targets.llamafactory.model import DATA, MODEL, OBJECTIVE, forms
from tunec.targets.llamafactory.packages import (
    PACKAGE,
    RELEASES,
    SUPPORTED,
    TRAINER,
    installed,
    installed_releases,
    ranges,
)
from tunec.targets.llamafactory.refusals import REFUSALS
from tunec.targets.read_only import schema_of
from tunec.targets.rows import NO_DROPOUT_FOR_PAIRS, is_supervised, row
from tunec.targets.scripts.launchers import without_rank_flag
from tunec.targets.scripts.refusals import refusing
from tunec.targets.trainers import (
    beside_fsdp_and_rewards,
    going_on,
    other_releases,
    own_columns,
    taking_the_tokenizers_template,
)

_MARKS: Final = frozenset(
    {
        *("stage", "finetuning_type", "template", "cutoff_len", "dataset_dir", "lora_target"),
        *("infer_backend", "export_dir", "plot_loss", "adapter_name_or_path", "flash_attn"),
        *("disable_gradient_checkpointing", "additional_target", "lora_rank", "neat_packing"),
        *("use_galore", "use_apollo", "use_badam", "badam_mode", "use_llama_pro", "shift_attn"),
        *("train_on_prompt", "mask_history", "freeze_trainable_layers", "freeze_vision_tower"),
        *("pref_loss", "pref_beta", "reward_model_type", "mix_strategy", "tokenized_path"),
        *("image_max_pixels", "video_max_pixels", "enable_liger_kernel", "resize_vocab"),
        *("quantization_method", "create_new_adapter", "loraplus_lr_ratio", "upcast_layernorm"),
    }
)
_ALSO: Final = frozenset({"overwrite_cache", "quantization_bit", "do_train", "val_size"})
"""Keys that examples of transformers and of ChatGLM also have."""


def _is_llamafactory(document: Json) -> bool:
    """Whether a document has two keys that files of TRL and the Trainer do not combine.

    Files with `model` are for another parser, which the variable USE_V1 selects (llamafactory 0.9.5
    cli.py).
    """
    if not isinstance(document, dict) or "model" in document:
        return False
    own = len(_MARKS & set(document))
    return own > 0 and own + len(_ALSO & set(document)) > 1


_OWN: Final = ("remove_unused_columns", "label_names")
"""Keys that the program sets itself: hparams/parser.py `get_train_args`."""


def _of_the_trainer() -> Iterator[Entry]:
    """The rows of TrainingArguments, counted by transformers' releases."""
    rows = (
        *training.BATCH,
        training.LEARNING_RATE,
        *training.OPTIMIZER,
        *schedule.LENGTH,
        *schedule.WARMUP,
        *schedule.LOGGING,
        schedule.LOG_STEPS,
        *schedule.SAVING,
        *schedule.EVALUATION,
        *training.RUNTIME,
        *PREDICTIONS,
        *FSDP,
    )
    for each in rows:
        if not {*each.keys} & {*_OWN}:
            yield replace(each, package=each.package or TRAINER)


_ENGINE: Final = (
    replace(
        row(
            ("deepspeed",),
            ("parallel.engine",),
            lambda _: {"deepspeed": "ds_config.json"},
            lambda found: {"parallel.engine": "deepspeed"} if found["deepspeed"] else {},
            "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments`",
            when=on_deepspeed,
        ),
        package=TRAINER,
    ),
    same(
        "tf32",
        "precision.tf32",
        "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments`: absent, torch's own",
        package=TRAINER,
    ),
)


_releases: Final = other_releases(
    PACKAGE,
    ranges,
    installed_releases,
    "llamafactory extras/misc.py `check_dependencies`, and its `Requires-Dist`",
)
_own_columns: Final = own_columns(
    lambda plan: not is_supervised(plan),
    "dataset_info.json has llamafactory read",
    "llamafactory 0.9.3 to 0.9.5 data/converter.py",
)

_NEAT: Final = Version("0.9.4"), Version("0.9.5")
_NOT_NEAT: Final = Version("4.53")


def _packs_beside(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
    """llamafactory 0.9.4 refuses to pack beside its release of transformers."""
    first, last = _NEAT
    if plan.data.packing and first <= dialect[PACKAGE] < last and dialect[TRAINER] >= _NOT_NEAT:
        yield Diagnostic(
            "E0905",
            "error",
            f"llamafactory does not run this plan: {dialect[PACKAGE]} packs samples beside "
            f"transformers before {_NOT_NEAT}, and {dialect[TRAINER]} goes with it",
            (Label("data.packing is true", path="data.packing"),),
            ("llamafactory 0.9.4 hparams/parser.py `get_train_args`: neat_packing",),
            help="name transformers 4.52.4 in `software`, or request llamafactory@0.9.5",
        )


def _check(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
    yield from _packs_beside(plan, dialect)
    yield from _releases(plan, dialect)
    yield from _own_columns(plan, dialect)


def _schema(dialect: Dialect) -> str | None:
    """The schema of a release beside its transformers; none beside one that it does not take."""
    trainer = dialect[TRAINER]
    if trainer.major <= _ASKED_BESIDE:
        return _SCHEMAS(dialect)
    taken = dialect[PACKAGE] >= _LATER_OF and trainer < _LATER_UNTIL
    return _LATER if taken else None


_SCHEMAS: Final = schema_of("llamafactory", RELEASES, PACKAGE)
_ASKED_BESIDE: Final = 4
"""The major release of transformers beside which each schema was made
(schemas/json/llamafactory)."""
_LATER: Final = "llamafactory/later/0.9.5.json"
"""The schema beside transformers 5, whose arguments have other types."""
_LATER_OF, _LATER_UNTIL = Version("0.9.5"), Version("5.7")
"""The release that takes a transformers 5, up to 5.6.0: `check_dependencies`."""


CONFIG: Final = File(
    name="llamafactory.yaml",
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
        *_ENGINE,
        *_of_the_trainer(),
    ),
    recognise=_is_llamafactory,
    schema=_schema,
    check=_check,
    phrases=(EVERY_LAYER, ADAMW),
    foreign=forms,
    reads_powers=True,
    carries=CARRIES,
    takes=TAKES,
    leaves=LEAVES,
    defaults=does,
    names=("deepspeed",),
)


# ── what no key says ─────────────────────────────────────────────────────────────────────────────

_CANNOT: Final = {
    **CANNOT,
    **beside_fsdp_and_rewards(),
    "objective.kind": Cannot(
        "of its stages tunec plans sft and dpo: `rm` computes all logits, in fp32 too, beside the "
        "value head that it trains, of which no account is kept; the critic of `ppo` is a head on "
        "the trained model itself, beside a reward model; and none is GRPO",
        True,
        ("sft", "dpo"),
    ),
    "model.kind": Cannot(
        "LLaMA-Factory trains models that write text", True, ("causal-lm", "vision-language")
    ),
    **taking_the_tokenizers_template(
        "it has templates of its own, by name: `extra: {llamafactory: {template: default}}` puts "
        "roles in words, for a tokenizer that has none"
    ),
    "adapter.dropout": NO_DROPOUT_FOR_PAIRS,
    "loss.path": Cannot("it computes all logits, or Liger fuses the loss", True, ("full",)),
    "model.trust_remote_code": Cannot("a row says it"),
    "adapter.targets": Cannot("names within the language model say it"),
    "data.images": Cannot("the data has them, and a template puts them before the model"),
    "data.train": Cannot("dataset_info.json says it"),
    "data.sequence": Cannot("cutoff_len counts the tokens of images too"),
    "states.weights": Cannot("weights have the dtype of their file, and what is trained is fp32"),
    "parallel.engine": Cannot("of several processes torch makes DDP"),
    "parallel.sequence": Cannot("no key shares a sequence", True, (1,)),
    "activation_checkpointing.mode": Cannot("another row says it"),
}


def _needs(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Pin the storage of 4-bit weights, loading on the CPU under FSDP, and a launcher.

    llamafactory 0.9.3 to 0.9.5 model/model_utils/quantization.py `configure_quantization`: storage
    in the compute dtype; model/patcher.py `patch_config`: a device map unless `is_fsdp_enabled`.
    """
    loading = {"fsdp.efficient_loading": True} if spec.engine == "fsdp" else {}
    pinned = {**loading, **_of_packing(spec), **without_rank_flag(spec, draft)}
    if spec.method.qlora is None or "precision" not in draft.groups:
        return pinned
    return {**pinned, "quantization.storage": draft.precision.compute}


def _of_packing(spec: Spec) -> Mapping[str, Any]:
    """Pin FlashAttention, whose mask is not quadratic, and a batch of one row.

    llamafactory 0.9.3 to 0.9.5 data/collator.py `SFTDataCollatorWith4DAttentionMask`; 0.9.5 also
    asserts a batch of one row.
    """
    if not spec.data.packing or spec.objective.sft is None:
        return {}
    kernel = {"attention.implementation": "flash_attention_2"} if spec.attention is None else {}
    return {**kernel, **({} if "batch.micro" in spec.pin else {"batch.micro": 1})}


def entry(_: Plan, __: Dialect) -> tuple[str, ...]:
    """The module and file that `llamafactory-cli train` starts by torchrun.

    llamafactory 0.9.3 cli.py, 0.9.4 and 0.9.5 launcher.py: `torchrun ... launcher.py FILE`.
    """
    return ("llamafactory.launcher", f"{PACKAGE}/{CONFIG.name}")


_HEARING: Final = Version("0.9.4")


def _imports(draft: Draft, version: Version) -> tuple[str, ...]:
    """What the optimizer imports, and torchaudio, whose release must fit the torch.

    llamafactory 0.9.4 and 0.9.5 data/mm_plugin.py import it for every model; their wheels ask for
    2.4.0 or later.
    """
    hearing = ("torchaudio",) if version >= _HEARING else ()
    return (*hearing, *optimizer_packages(draft, version))


def counting(dialect: Dialect, passed: Mapping[str, Any]) -> Counting:
    """Steps are counted as by the Trainer; packing is a knapsack over a thousand samples at a time.

    llamafactory 0.9.3 to 0.9.5 data/processor/processor_utils.py `greedy_knapsack`.
    """
    steps = trainer.counting(dialect, passed).steps
    return Counting(f"llamafactory {dialect[PACKAGE]}", steps, "knapsack")


TARGET: Final = Target(
    name="llamafactory",
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=(CONFIG, DATASET_INFO, ds_config(READER, when=on_deepspeed)),
    cannot=_CANNOT,
    needs=_needs,
    check=refusing("llamafactory", REFUSALS),
    beside={
        TRAINER: TRANSFORMERS,
        PEFT: PEFT_RELEASES,
        ACCELERATE_PACKAGE: ACCELERATE,
        DEEPSPEED_PACKAGE: DEEPSPEED,
    },
    media=Media(is_told=True),
    companions=installed_releases,
    imports=_imports,
    installs=installed,
    entry=entry,
    resumes="resume_from_checkpoint={}",
    # hparams/parser.py `get_train_args`
    goes_on=going_on("llamafactory", "overwrite_output_dir", "resume_from_checkpoint"),
    run_by="trl",
    takes_one_row=lambda plan, dialect: plan.data.packing and dialect[PACKAGE] >= _NEAT[1],
    counting=counting,
    records=records,
    template_key=lambda *_: "template",
    verify="tunec.targets.llamafactory.verify",
)
"""The target for `llamafactory-cli train`."""
