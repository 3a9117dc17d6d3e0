"""Rules about keys that Axolotl refuses without another key."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.conditions import check_need, entries, needs
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.training_loop import FLASH, KERNELS, configs, is_positive
from tunec.compiler.lints.kinds import is_fragment
from tunec.compiler.lints.rows import Mend, Row, found, rows
from tunec.compiler.lints.rule import Finding, keys, rule

_VARLEN: Final = (*FLASH, "flex_attention", "xformers_attention", "sage_attention")
_VARLEN_WORDS: Final = (
    *(f"attn_implementation={each}" for each in ("flex_attention", "xformers", "sage")),
    "attn_implementation~kernels-community/",
)
_FLEX: Final = ("attn_implementation=flex_attention", "flex_attention")
_KERNELS: Final = "plugins~kernels"
_V2: Final = ("fsdp_version=2", "fsdp_config.fsdp_version=2", "fsdp_config.version=2")

_NEEDS: Final = (
    *needs(
        "",
        ("push_dataset_to_hub", ("hf_use_auth_token=true",), ""),
        ("do_bench_eval", ("evals_per_epoch", "eval_steps"), "it runs after an evaluation"),
        ("batch_size", ("micro_batch_size", "gradient_accumulation_steps"), ""),
        ("chat_template=jinja", ("chat_template_jinja",), "the template is its text"),
        ("pretraining_dataset", ("max_steps",), "the length of a stream is not known"),
        ("relora", ("adapter",), "ReLoRA merges an adapter"),
        ("early_stopping_patience", ("save_steps",), ""),
        ("early_stopping_patience", ("eval_steps",), ""),
        ("batch_flattening=true", (*_VARLEN, *_VARLEN_WORDS), "samples would attend to each other"),
        ("sequence_parallel_degree>1", FLASH, "ring attention is built on FlashAttention"),
        (
            "cut_cross_entropy & plugins~cut_cross",
            ("bf16", "fp16", "bfloat16", "float16"),
            "its backward pass needs half precision",
        ),
    ),
    *needs("axolotl<0.12", ("relora_steps", ("adapter",), "ReLoRA merges an adapter")),
    *needs(
        "axolotl>=0.12",
        ("relora", ("jagged_restart_steps",), "ReLoRA restarts at that interval"),
        ("deepcompile", ("deepspeed",), "DeepSpeed compiles the model"),
        ("fp8_enable_fsdp_float8_all_gather", _V2, "FSDP2 gathers in 8 bits"),
        ("context_parallel_size>1", FLASH, "ring attention is built on FlashAttention"),
        *((f"{each} & fsdp_config", _V2, "FSDP1 flattens the factors") for each in KERNELS),
    ),
    *needs(
        "axolotl>=0.13",
        ("streaming", ("max_steps",), "the length of a stream is not known"),
        ("optimizer=muon & fsdp_config", _V2, "FSDP1 flattens the matrices"),
        ("fsdp_config.cpu_offload_pin_memory=false", _V2, "FSDP1 has no such key"),
        (
            "fsdp_config.cpu_offload_pin_memory=false",
            ("fsdp_config.offload_params",),
            "nothing is offloaded",
        ),
        (
            "liger_use_token_scaling & plugins~liger",
            ("liger_fused_linear_cross_entropy",),
            "only that loss is scaled",
        ),
        (
            "plugins~swanlab & no use_swanlab=false",
            ("swanlab_project",),
            "its plugin is on by default",
        ),
    ),
    *needs("axolotl>=0.13.1", ("scaling_softmax", _FLEX, "only flex attention scales")),
    *needs(
        "axolotl>=0.15",
        ("quantize_moe_experts", ("load_in_4bit", "load_in_8bit"), ""),
        ("quantize_moe_experts", ("adapter",), ""),
    ),
    *needs(
        "axolotl>=0.16",
        ("save_strategy=best", ("metric_for_best_model",), ""),
        ("optimizer~flash_ & fsdp_config", _V2, "FSDP1 flattens the parameters"),
        ("rl=ebft", ("ebft",), "the method has its own section"),
        (
            "nemo_gym_enabled & plugins~nemo_gym",
            ("nemo_gym_config_paths", "nemo_gym_auto_start=false"),
            "they configure its servers",
        ),
        ("nemo_gym_enabled & plugins~nemo_gym", ("nemo_gym_datasets",), "they contain its prompts"),
    ),
    *needs(
        "axolotl>=0.17",
        ("fp32_norms", ("fsdp_config",), "only FSDP keeps norms apart"),
        ("fp32_norms & fsdp_config", _V2, "a flat parameter of FSDP1 has one dtype"),
        ("optimizer=q_galore_adamw8bit & fsdp_config", _V2, "FSDP1 flattens"),
        ("dpo_loss_weights", ("dpo_loss_type",), "each weight belongs to a loss"),
        ("dpo_loss_weights", ("rl=dpo",), "only DPO reads them"),
        ("dpo_loss_type", ("rl=dpo",), "only DPO reads it"),
        (
            "optimizer=q_galore_adamw8bit & fsdp_config",
            ("fsdp_config.use_orig_params",),
            "projections are stored for each parameter",
        ),
    ),
    *needs(
        "axolotl>=0.18",
        ("torch_compile_options", ("torch_compile",), ""),
        (
            "fsdp_config.auto_wrap_policy=SIZE_BASED_WRAP",
            ("fsdp_config.min_num_params", "fsdp_config.fsdp_min_num_params"),
            "the policy wraps modules by that size",
        ),
        ("selective_checkpointing", ("gradient_checkpointing",), "nothing is kept"),
        (
            f"nvfp4_merge_aware_start_step & {_KERNELS}",
            ("nvfp4_merge_aware=true",),
            "it is the first step of that",
        ),
        (
            f"nvfp4_merge_aware=true & {_KERNELS}",
            ("expert_backend=sonicmoe", "use_sonicmoe=true"),
            "only these experts quantise like the merge",
        ),
        (f"nvfp4_merge_aware=true & {_KERNELS}", ("adapter=lora",), "only LoRA is merged so"),
    ),
    *needs(
        "axolotl>=0.19",
        ("fp8_config", ("fp8",), ""),
        ("optimizer=polora", ("adapter",), "it trains the factors of an adapter"),
        ("ple_cpu_offload", ("load_in_4bit", "load_in_8bit"), "the base is quantised"),
        ("optimizer=polora & fsdp_config", _V2, "FSDP1 flattens the factors"),
    ),
)
"""Conditions that are refused unless one of the others holds."""


@rule("error", "parse", consumers=("axolotl",), reads=("axolotl:*",))
def refused_alone(run: LintContext) -> Iterator[Finding]:
    """Axolotl refuses a key without another one."""
    for document in configs(run):
        yield from _data(document)
        yield from _templates(document)
        for need in _NEEDS:
            yield from check_need(run, document, need)


def _data(document: Document) -> Iterator[Finding]:
    model = document.get("base_model")
    if model is None or is_fragment(document):
        return
    if document.unknown & {"datasets", "pretraining_dataset"}:
        return
    if document.value("datasets") is None and document.value("pretraining_dataset") is None:
        yield Finding(
            "no datasets and no pretraining_dataset",
            (model.label("nothing to train on"),),
            (),
            "write datasets",
        )


def _templates(document: Document) -> Iterator[Finding]:
    """A data set's chat template lacks its text, which is a separate key."""
    for key in ("datasets", "test_datasets"):
        for each in entries(document, key):
            template = each.get("chat_template")
            is_text = template is not None and template.value == "jinja"
            if template is not None and is_text and "chat_template_jinja" not in each:
                yield Finding(
                    "chat_template jinja requires chat_template_jinja",
                    (template.label("refused"),),
                    ("the template is its text",),
                    "write chat_template_jinja beside it",
                )


_INTERVALS: Final = tuple(
    Row(
        f"axolotl:{interval}",
        "Axolotl refuses {0.key} with {1.key} {1.value}",
        "refused",
        "an interval in steps needs the strategy `steps`",
        "write {1.key}: steps, or remove {0.key}",
        beside=(f"{strategy}!=steps|false",),
        files_only=True,
    )
    for strategy, interval in (
        ("save_strategy", "save_steps"),
        ("eval_strategy", "eval_steps"),
        ("eval_strategy", "evals_per_epoch"),
    )
)


@rule(
    "error",
    "parse",
    consumers=("axolotl",),
    reads=keys("axolotl", "save_steps", "eval_steps", "evals_per_epoch", "eval_strategy"),
)
def cadence_refused(run: LintContext) -> Iterator[Finding]:
    """Axolotl refuses the settings for when it saves and evaluates."""
    yield from found(_INTERVALS, run)
    for document in configs(run):
        yield from _without_data(document)
        yield from _early(document)


def _without_data(document: Document) -> Iterator[Finding]:
    share = document.get("val_set_size")
    if share is None or share.value != 0 or document.value("test_datasets"):
        return
    word = document.get("eval_strategy")
    asked = [each for key in ("eval_steps", "eval_strategy") if (each := document.get(key))]
    first = next((each for each in asked if each.value), None)
    if first is not None and (word is None or word.value != "no"):
        yield Finding(
            f"Axolotl refuses {first.path} with val_set_size 0",
            (first.label("refused"), share.label("nothing to evaluate on", primary=False)),
            (),
            f"remove {first.path}, or set val_set_size",
        )


def _early(document: Document) -> Iterator[Finding]:
    patience = document.get("early_stopping_patience")
    save, evaluate = document.get("save_steps"), document.get("eval_steps")
    if patience is None or not patience.value or save is None or evaluate is None:
        return
    if (
        not (is_positive(save.value) and is_positive(evaluate.value))
        or save.value % evaluate.value == 0
    ):
        return
    yield Finding(
        f"early stopping: save_steps {save.value} is no multiple of eval_steps {evaluate.value}",
        (
            patience.label("refused"),
            save.label("", primary=False),
            evaluate.label("", primary=False),
        ),
        ("the best model is one that was saved and evaluated",),
        f"write save_steps: {max(1, round(save.value / evaluate.value)) * evaluate.value}",
    )


four_bits_without_qlora = rows(
    "four-bits-without-qlora",
    "error",
    "silent",
    consumers=("axolotl>=0.13",),
    rows=(
        Row(
            "axolotl:load_in_4bit=true",
            "load_in_4bit with adapter lora: the base is not quantised",
            "does nothing",
            "Axolotl builds a 4-bit config for `qlora` and an 8-bit one for `lora`, no other",
            "use adapter: qlora",
            Mend("unsafe", write="qlora", at=1),
            beside=("adapter=lora", "no load_in_8bit=true"),
            beside_label="not qlora",
        ),
    ),
)


@rule("error", "parse", consumers=("axolotl",), reads=("axolotl:adapter",))
def qlora_not_in_four_bits(run: LintContext) -> Iterator[Finding]:
    """The adapter is qlora, but the base is not loaded in 4 bits."""
    for document in run.of("axolotl"):
        adapter = document.get("adapter")
        if adapter is None or adapter.value != "qlora" or document.value("merge_lora"):
            continue
        other = _other(document)
        if other is None and document.value("load_in_4bit") is True:
            continue
        yield Finding(
            f"adapter qlora needs load_in_4bit{f', not {other.path}' if other else ''}",
            (
                (other or adapter).label("not 4 bits" if other else "needs load_in_4bit"),
                *([adapter.label("", primary=False)] if other else []),
            ),
            ("Axolotl does not set it by itself: it refuses the file",),
            "set load_in_4bit: true, or use adapter lora",
            _fix(document, other),
        )


def _other(document: Document) -> Place | None:
    """The other format in which the base is loaded."""
    found = (document.get(key) for key in ("load_in_8bit", "gptq"))
    return next((each for each in found if each is not None and each.value is True), None)


def _fix(document: Document, other: Place | None) -> Fix | None:
    said = document.get("load_in_4bit")
    if other is not None:
        return None
    edit = said.replaced(True) if said else document.added("load_in_4bit", True)
    return Fix((edit,), "safe") if edit else None


def _torch(condition: str, what: str, least: str, help: str) -> Row:
    """A row for what Axolotl refuses below a release of torch."""
    return Row(
        condition,
        f"{what} needs torch {least}",
        "refused",
        "Axolotl compares the release of torch when it reads the file",
        help,
        since=f"torch<{least}",
    )


torch_too_old = rows(
    "torch-too-old-for-axolotl",
    "error",
    "parse",
    consumers=("axolotl",),
    rows=(
        _torch("axolotl:optimizer=adopt_adamw", "ADOPT", "2.5.1", "write optimizer: adamw_torch"),
        *(
            _torch(f"axolotl:{each}", "flex attention", "2.6", "use flash_attention_2 or sdpa")
            for each in ("flex_attention=true", "attn_implementation=flex_attention")
        ),
    ),
)
"""axolotl 0.13.2 and 0.19.0 utils/schemas/config.py `check_adopt_torch_version`,
`check_flex_torch_version`."""
