"""Values and recipes that TRL's trainers do not know."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.facts.known_keys import consequence_of_unknown
from tunec.compiler.lints.facts.training_loop import trl
from tunec.compiler.lints.kinds import own_keys
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule

_MEANT: Final[Mapping[str, tuple[str, str]]] = {
    "r": ("lora_r", "PEFT"),
    "target_modules": ("lora_target_modules", "PEFT"),
    "modules_to_save": ("lora_modules_to_save", "PEFT"),
    "task_type": ("lora_task_type", "PEFT"),
    "bnb_4bit_compute_dtype": ("dtype", "transformers"),
    "bnb_4bit_use_double_quant": ("use_bnb_nested_quant", "transformers"),
    "use_flash_attention_2": ("attn_implementation", "transformers"),
    "lora_rank": ("lora_r", "LLaMA-Factory"),
    "lora_target": ("lora_target_modules", "LLaMA-Factory"),
    "additional_target": ("lora_modules_to_save", "LLaMA-Factory"),
    "quantization_bit": ("load_in_4bit", "LLaMA-Factory"),
    "cutoff_len": ("max_length", "LLaMA-Factory"),
    "flash_attn": ("attn_implementation", "LLaMA-Factory"),
    "finetuning_type": ("use_peft", "LLaMA-Factory"),
    "sequence_len": ("max_length", "Axolotl"),
    "sample_packing": ("packing", "Axolotl"),
    "micro_batch_size": ("per_device_train_batch_size", "Axolotl"),
    "num_epochs": ("num_train_epochs", "Axolotl"),
    "peft_use_dora": ("use_dora", "Axolotl"),
    "peft_use_rslora": ("use_rslora", "Axolotl"),
    "flash_attention": ("attn_implementation", "Axolotl"),
    "adapter": ("use_peft", "Axolotl"),
}
"""Another tool's key, TRL's key for it, and the tool. Keys whose values differ are not renamed."""
_ALIKE: Final = frozenset(
    {
        *("r", "target_modules", "modules_to_save", "task_type", "lora_rank", "cutoff_len"),
        *("sequence_len", "sample_packing", "micro_batch_size", "num_epochs", "peft_use_dora"),
        *("peft_use_rslora", "bnb_4bit_use_double_quant"),
    }
)

_OWN: Final = (
    *("use_peft", "lora_r", "packing", "num_generations", "assistant_only_loss", "eos_token"),
    *("completion_only_loss", "use_bnb_nested_quant", "lora_task_type", "dataset_text_field"),
    *("padding_free", "chat_template_path", "max_completion_length", "desirable_weight"),
)
"""Keys by which a file is recognised as one for TRL's scripts."""


@rule("warning", "parse", consumers=("trl",), reads=keys("|".join(TRL), *_MEANT))
def trl_recipe_refused(run: LintContext) -> Iterator[Finding]:
    """A recipe for TRL's scripts with keys of other tools."""
    for document in run.of(*TRL):
        if document.is_view or document.format == "shell" or not _is_for_scripts(document):
            continue
        consequence = consequence_of_unknown(run, document)
        for key, (meant, whose) in _MEANT.items():
            at = document.get(key)
            if at is None:
                continue
            free = key in _ALIKE and meant not in document.found
            yield Finding(
                f"`{key}` is a key of {whose}, which TRL's scripts do not have",
                (at.key_label("dropped" if consequence == "silent" else "refused"),),
                ()
                if consequence == "silent"
                else ("ValueError: Unknown arguments from config file",),
                f"write `{meant}`",
                Fix((at.renamed(meant),), "unsafe") if free else None,
                consequence=consequence,
            )


def _is_for_scripts(document: Document) -> bool:
    """Whether it names a model and data as TRL's scripts expect, and has no unknown keys."""
    says_data = any(document.get(key) for key in ("dataset_name", "datasets", "dataset_config"))
    says_trl = any(document.get(key) for key in _OWN)
    own = own_keys(document.target, document.file, document.root.fields or ())
    names_model = document.get("model_name_or_path") is not None
    return says_data and says_trl and names_model and own <= set(_MEANT)


_TRUNCATION: Final = ("keep_start", "keep_end")
_TASKS: Final = (
    *("SEQ_CLS", "SEQ_2_SEQ_LM", "CAUSAL_LM", "TOKEN_CLS", "QUESTION_ANS", "FEATURE_EXTRACTION"),
)
_DTYPES: Final = ("auto", "bfloat16", "float16", "float32", "half", "float", "float64", "double")
_SHORT: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_SHARED: Final[Mapping[str, tuple[str, ...]]] = {
    "bnb_4bit_quant_type": ("nf4", "fp4"),
    "lora_task_type": _TASKS,
    "dtype": _DTYPES,
    "torch_dtype": _DTYPES,
    "model_init_kwargs.dtype": _DTYPES,
    "model_init_kwargs.torch_dtype": _DTYPES,
    "truncation_mode": _TRUNCATION,
}
_OF_GRPO: Final[Mapping[str, tuple[str, ...]]] = {
    "loss_type": (
        *("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
        "two-sided",
    ),
    "importance_sampling_level": ("token", "sequence", "sequence_token"),
    "vllm_mode": ("server", "colocate"),
    "vllm_importance_sampling_mode": (
        *("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    ),
    "scale_rewards": ("group", "batch", "none", "True", "False", "true", "false"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
}
_OF_SFT: Final[Mapping[str, tuple[str, ...]]] = {
    "loss_type": ("nll", "dft", "chunked_nll"),
    "packing_strategy": ("bfd", "bfd_split", "bfd-requeue", "bfd_requeue", "wrapped", "ffd"),
}
_OF_DPO: Final[Mapping[str, tuple[str, ...]]] = {
    "f_divergence_type": ("reverse_kl", "forward_kl", "js_divergence", "alpha_divergence")
}
_WORDS: Final = {
    "sft": {**_SHARED, **_OF_SFT},
    "dpo": {**_SHARED, **_OF_DPO},
    "grpo": {**_SHARED, **_OF_GRPO},
    "rloo": {**_SHARED, "vllm_mode": ("server", "colocate")},
    "kto": {**_SHARED, "loss_type": ("kto", "apo_zero_unpaired")},
    "reward": {key: each for key, each in _SHARED.items() if key != "truncation_mode"},
    "gkd": _SHARED,
    "axolotl": _OF_GRPO,
    "model": {key: _SHARED[key] for key in ("bnb_4bit_quant_type", "dtype", "torch_dtype")},
}
"""The choices of every known release. `ffd` is of 0.17, `two-sided` of forks."""
_WORD_KEYS: Final = (
    *(f"{kind}:{key}" for kind, words in _WORDS.items() for key in words if kind != "axolotl"),
    *keys("axolotl", *(f"trl.{key}" for key in _OF_GRPO)),
)
_LOSSES: Final = frozenset(
    {
        *_OF_GRPO["loss_type"],
        *_OF_SFT["loss_type"],
        *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard"),
        *("aot", "aot_pair", "aot_unpaired", "apo_zero", "apo_down", "discopop", "sigmoid_norm"),
        *("sft", "kto", "kto_pair", "apo_zero_unpaired", "simpo", "orpo", "ddpo"),
    }
)
"""Losses of all trainers: a file without a key of its method may be for another trainer."""
_LATE: Final = (("kto", "loss_type"), ("grpo", "loss_type"))
"""trl 1.16.0 trainer/kto_trainer.py: no branch of `_compute_loss` computes a loss; run. trl 0.17.0
to 1.16.0 trainer/grpo_trainer.py `_compute_loss`: ValueError, Unknown loss type."""
_AT_STEP: Final = (
    *("importance_sampling_level", "scale_rewards", "multi_objective_aggregation"),
    "vllm_importance_sampling_mode",
)
"""Values that GRPO uses in its loss and its advantages."""
_WHEN: Final[Mapping[str, Consequence]] = {
    **dict[str, Consequence](dict.fromkeys(_AT_STEP, "step")),
    "bnb_4bit_quant_type": "load",
    "dtype": "load",
    "torch_dtype": "load",
    "model_init_kwargs.dtype": "load",
    "model_init_kwargs.torch_dtype": "load",
}
_SINCE: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("grpo", "loss_type"): {
        "dapo": "trl>=0.22",
        "cispo": "trl>=0.26",
        "sapo": "trl>=0.26",
        "luspo": "trl>=0.28",
        "vespo": "trl>=1.0",
    },
    ("sft", "loss_type"): {"chunked_nll": "trl>=1.4"},
}
"""The releases that have a choice: trl 0.21.0 and 0.22.2, 0.25.1 and 0.26.0, 0.27.2 and 0.28.0,
0.29.0 and 1.0.0 trainer/grpo_trainer.py `_compute_loss`; 1.3.0 and 1.4.0 trainer/sft_trainer.py."""
_NOW: Final = {"packing_strategy": ("bfd", "bfd_split", "bfd-requeue", "wrapped")}
"""The choices of trl 1, if that runs."""


def _taken(run: LintContext, kind: str, key: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """The choices of the release, or of all known ones if it is unknown."""
    taken = _NOW.get(key, words) if run.runs("trl>=1") else words
    since = _SINCE.get((kind, key), {})
    return tuple(each for each in taken if run.runs(since.get(each, "trl>=0")) is not False)


def _is_of_another(document: Document) -> bool:
    """Whether the file has keys unknown to TRL, so that another program reads it."""
    own = own_keys(document.target, document.file, document.root.fields or ())
    return document.kind != "axolotl" and len(own) > 1


@rule("error", "init", consumers=("trl",), reads=_WORD_KEYS, unless="quoted")
def trl_word_refused(run: LintContext) -> Iterator[Finding]:
    """A value that TRL's configuration accepts, and its trainer does not."""
    for document in run.of(*_WORDS):
        if document.is_view or _is_of_another(document):
            continue
        for key, words in _WORDS[document.kind].items():
            at = trl(document, key)
            taken = _taken(run, document.kind, key, words)
            if at is None or not isinstance(at.value, str) or at.value in taken or not at.value:
                continue
            if key == "loss_type" and document.kind == "sft" and at.value in _LOSSES:
                continue
            near = [_SHORT[at.value]] if at.value in _SHORT else nearest(at.value, taken)[:1]
            yield Finding(
                f"{at.path} cannot be {at.value}",
                (at.label("not known"),),
                (
                    f"known: {quoted(sorted(taken))}",
                    "the configuration accepts any text; the trainer looks it up later",
                ),
                f"did you mean {quoted(near)}?" if near else "write one of these",
                Fix((at.replaced(near[0]),), "unsafe") if near else None,
                consequence="step" if (document.kind, key) in _LATE else _WHEN.get(key),
            )
