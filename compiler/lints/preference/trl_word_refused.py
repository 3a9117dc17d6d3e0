"""A word that TRL's configuration takes, and that its trainer does not know."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.kinds import own_keys
from tunec.compiler.lints.preference.asked import trl
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

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
    "f_divergence_type": ("reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"),
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
"""The words of every release that is known. `ffd` is of 0.17, `two-sided` of the forks."""
_LOSSES: Final = frozenset(
    {
        *_OF_GRPO["loss_type"],
        *_OF_SFT["loss_type"],
        *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard"),
        *("aot", "aot_pair", "aot_unpaired", "apo_zero", "apo_down", "discopop", "sigmoid_norm"),
        *("sft", "kto", "kto_pair", "apo_zero_unpaired", "simpo", "orpo", "ddpo"),
    }
)
"""Losses of any trainer: a file without a key of its method may be for another one."""
_LATE: Final = (("kto", "loss_type"), ("grpo", "loss_type"))
"""trl 1.16.0 trainer/kto_trainer.py: no branch of `_compute_loss` makes a loss; run. trl 0.17.0 to
1.16.0 trainer/grpo_trainer.py `_compute_loss`: ValueError, Unknown loss type."""
_AT_STEP: Final = (
    *("importance_sampling_level", "scale_rewards", "multi_objective_aggregation"),
    "vllm_importance_sampling_mode",
)
"""Words that GRPO's loss looks up, and its advantages."""
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
"""The releases that know a word: trl 0.21.0 and 0.22.2, 0.25.1 and 0.26.0, 0.27.2 and 0.28.0,
0.29.0 and 1.0.0 trainer/grpo_trainer.py `_compute_loss`; 1.3.0 and 1.4.0 trainer/sft_trainer.py."""
_NOW: Final = {"packing_strategy": ("bfd", "bfd_split", "bfd-requeue", "wrapped")}
"""Those of trl 1 alone, where that is what runs."""


def _taken(run: Run, kind: str, key: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words that the release knows, as far as somebody names it."""
    taken = _NOW.get(key, words) if run.runs("trl>=1") else words
    since = _SINCE.get((kind, key), {})
    return tuple(each for each in taken if run.runs(since.get(each, "trl>=0")) is not False)


def _is_of_another(document: Document) -> bool:
    """Whether keys that TRL has not say that a program of its own reads the file."""
    own = own_keys(document.target, document.file, document.root.fields or ())
    return document.kind != "axolotl" and len(own) > 1


def _check(run: Run) -> Iterator[Finding]:
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
                    "the configuration takes any text; the trainer looks it up later",
                ),
                f"did you mean {quoted(near)}?" if near else "write one of these",
                Fix((at.replaced(near[0]),), "unsafe") if near else None,
                consequence="step" if (document.kind, key) in _LATE else _WHEN.get(key),
            )


RULE = Rule(
    name="trl-word-refused",
    severity="error",
    consequence="init",
    consumers=("trl",),
    sources=(
        (
            "trl 1.16.0 trainer/grpo_trainer.py `_compute_loss`: Unknown loss type, Unknown "
            "importance sampling level, Invalid value for scale_rewards, Invalid "
            "multi_objective_aggregation; sft_trainer.py: Invalid `loss_type`; data_utils.py "
            "`pack_dataset`: Invalid packing strategy; dpo_trainer.py: Unknown f_divergence_type"
        ),
        "bitsandbytes 0.46 nn/modules.py `Params4bit`: quant_type fp4 or nf4; peft 0.21.2 TaskType",
        "trl 0.8.6 to 1.16.0 scripts/sft.py: getattr(torch, model_args.dtype)",
    ),
    check=_check,
)
