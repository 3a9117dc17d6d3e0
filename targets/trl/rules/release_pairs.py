"""Settings that some releases of TRL refuse together."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.zero import stage_of
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, rule
from tunec.schemas.frozen import dataclass


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two conditions, why they clash, and in which releases."""

    kinds: tuple[str, ...]
    condition: str
    other: str
    why: str
    releases: str
    consequence: Consequence | None = None


_SFT: Final = ("sft",)
_DPO: Final = ("dpo",)
_KTO: Final = ("kto",)
_GRPO: Final = ("grpo",)
_GROUPED: Final = ("grpo", "rloo")
_PPO: Final = ("ppo",)
_BEFORE_LIGER: Final = ("hinge", "ipo", "exo_pair", "robust", "bco_pair", "aot", "aot_pair")
"""Losses of DPO that Liger's had not in trl 0.19.1 to 0.27.2 trainer/dpo_trainer.py."""
_FUSED: Final = "it replaces the model's forward, which the trainer patches with a head of its own"
_MASKS_LOST: Final = "packing keeps input_ids alone: what is not to be learnt is learnt too"
_PAIRS: Final = (
    _Pair(_SFT, "assistant_only_loss", "packing", _MASKS_LOST, "trl>=0.19,<0.20", "silent"),
    _Pair(_SFT, "completion_only_loss", "packing", _MASKS_LOST, "trl>=0.17,<0.20", "silent"),
    _Pair(
        _DPO,
        "precompute_ref_log_probs",
        "use_liger_kernel",
        "Liger DPO loss does not support precomputing reference log probabilities",
        "trl>=0.29,<1.10",
    ),
    _Pair(
        _DPO,
        "use_peft",
        "use_liger_kernel",
        "Liger DPO loss is not implemented for PEFT models",
        "trl>=0.29,<1.10",
        "step",
    ),
    _Pair(
        _DPO,
        "precompute_ref_log_probs",
        "dataset_streaming",
        "a stream has no length, and is not read twice",
        "trl>=0.29",
    ),
    *(
        _Pair(
            _DPO,
            f"loss_type={word}",
            "use_liger_loss",
            "Liger's loss knows no such type",
            "trl>=0.19,<0.29",
        )
        for word in _BEFORE_LIGER
    ),
    *(
        _Pair(_KTO, condition, "use_liger_loss", why, "trl>=0.19,<0.29")
        for condition, why in (
            ("loss_type=apo_zero_unpaired", "Only KTO loss is supported with liger-kernel"),
            ("precompute_ref_log_probs", "Liger computes those of the reference itself"),
            ("use_peft", "You cannot use `use_liger_loss=True` with Peft models"),
        )
    ),
    _Pair(
        _GROUPED,
        "load_in_8bit",
        "vllm_mode=colocate & use_vllm",
        "vLLM does not support in-flight 8-bit quantization",
        "trl>=0.27",
    ),
    _Pair(
        _PPO,
        "stop_token",
        "stop_token_id",
        "You cannot set both `stop_token` and `stop_token_id`",
        "trl>=0.15",
    ),
    _Pair(
        (*_SFT, *_DPO, *_KTO, *_GRPO),
        "liger_kernel_config.fused_linear_cross_entropy=true",
        "use_liger_kernel",
        _FUSED,
        "trl>=1.16",
    ),
    *(
        _Pair(
            _GRPO,
            f"vllm_importance_sampling_mode={word}",
            "loss_type=vespo & use_vllm",
            "VESPO loss requires the mode to be token_truncate or token_mask",
            "trl>=1",
        )
        for word in ("sequence_truncate", "sequence_mask")
    ),
    _Pair(
        _KTO,
        "precompute_ref_log_probs",
        "dataset_streaming",
        "a stream has no length, and is not read twice",
        "trl>=1.8",
    ),
    _Pair(
        _GRPO,
        "delta",
        "use_liger_loss",
        "Liger loss does not support two-sided GRPO loss yet",
        "trl>=0.18,<0.25",
    ),
    _Pair(
        _GRPO,
        "delta",
        "use_liger_kernel",
        "Liger kernel does not support two-sided GRPO loss yet",
        "trl>=0.25,<1.2",
    ),
    _Pair(
        _GRPO,
        "importance_sampling_level=sequence",
        "use_liger_loss",
        "Liger Kernels currently only support token-level importance sampling",
        "trl>=0.20,<0.26",
    ),
    _Pair(
        _GRPO,
        "importance_sampling_level=sequence",
        "use_liger_kernel",
        "Liger Kernels currently only support token-level importance sampling",
        "trl>=0.26,<1.0",
    ),
)
_SELECTIVE: Final = "gradient_checkpointing_kwargs.selective=true"
_NOT_REENTRANT: Final = "what is kept is chosen in the recomputation that is not reentrant"
_IN_ORDER: Final = "the term of its divergence is precomputed for neighbours in a fixed order"
_ENTROPY: Final = ("use_liger_loss", "use_liger_kernel")
_MASKED: Final = "trl>=0.20,<1.10"
_PRECOMPUTED: Final = "trl>=0.9,<0.29"
_LENGTH: Final = ("vllm_max_model_length", "vllm_max_model_len")


@rule(
    "trl-pair-of-some-releases",
    "error",
    "init",
    consumers=("trl",),
    sources=(
        (
            "trl 0.17.0 to 0.19.1 trainer/sft_trainer.py `_prepare_dataset`: "
            'select_columns("input_ids") before pack_dataset; huggingface/trl#3728'
        ),
        "trl 0.29.0 to 1.9.0 trainer/dpo_trainer.py `__init__`, `_compute_loss_liger`",
        (
            "trl 0.20.0 to 1.9.0 trainer/grpo_trainer.py `__init__`: based on entropy; 0.20.0 to "
            "0.29.0: token-level importance sampling; none of them in 1.16.0"
        ),
        "trl 0.29.1 to 1.16.0 trainer/dpo_trainer.py: not supported with IterableDataset",
        "trl 0.18.2 to 1.1.0 trainer/grpo_config.py `__post_init__`: two-sided GRPO loss",
        "trl 0.11.4 to 0.28.0 trainer/dpo_trainer.py `__init__`: with Deepspeed ZeRO-3",
        (
            "trl 0.19.1 to 0.27.2 trainer/dpo_trainer.py `__init__`: but the loss type is not; "
            "0.19.1 and 0.24.0 trainer/kto_trainer.py; 0.27.2 trainer/grpo_trainer.py, 1.0.0 to "
            "1.16.0 generation/vllm_generation.py: does not support in-flight 8-bit quantization; "
            "0.16.1 to 0.24.0 trainer/ppo_trainer.py, 1.9.2 experimental/ppo; 1.0.0 to 1.16.0 "
            "trainer/grpo_trainer.py: VESPO; 1.9.2 and 1.16.0 trainer/kto_trainer.py: requires "
            "`train_sampling_strategy='sequential'`; 1.16.0 trainer/*_trainer.py: "
            '`liger_kernel_config={"fused_linear_cross_entropy": True}` is not supported'
        ),
        "trl 0.17.0 to 1.16.0 trainer/grpo_config.py: not compatible with vLLM generation",
        (
            "trl 1.15.0 and 1.16.0 trainer/sft_trainer.py: requires non-reentrant gradient "
            "checkpointing; is not supported with PEFT + DeepSpeed ZeRO-3"
        ),
    ),
)
def trl_pair_of_some_releases(run: LintContext) -> Iterator[Finding]:
    """Two settings that TRL's trainers did not take together in some of its releases."""
    for document in run.of("sft", "dpo", "kto", "grpo", "rloo", "ppo"):
        if document.is_view:
            continue
        for pair in _PAIRS:
            at, beside = where(document, pair.condition), where(document, pair.other)
            if document.kind in pair.kinds and at is not None and beside is not None:
                yield from _refused(run, (at, beside), pair.why, pair.releases, pair.consequence)
        yield from _masked(run, document.get("top_entropy_quantile"), document.kind)
        yield from _precomputed(run, where(document, "precompute_ref_log_probs"))
        yield from _selected(run, document)
        if document.kind == "kto" and document.value("loss_type", "kto") == "kto":
            at = where(document, "train_sampling_strategy!=sequential")
            beside = document.get("loss_type") or document.get("desirable_weight")
            if at is not None and beside is not None:
                yield from _refused(run, (at, beside), _IN_ORDER, "trl>=1.9")
    for document in run.of("grpo"):
        gather = document.get("ds3_gather_for_generation")
        engine = where(document, "use_vllm")
        if gather is not None and gather.value is False and engine is not None:
            yield Finding(
                "ds3_gather_for_generation false cannot stand beside use_vllm",
                (gather.label("not compatible"), engine.label("", primary=False)),
                ("vLLM is given whole weights, and nobody gathers those of ZeRO stage 3",),
                "leave it true, or generate without vLLM",
                consequence="step",
                severity=None if stage_of(run).value == 3 else "warning",
            )
        yield from _lengths(document.get(_LENGTH[0]) or document.get(_LENGTH[1]))


def _refused(
    run: LintContext,
    places: tuple[Place, Place],
    why: str,
    releases: str,
    consequence: Consequence | None = None,
) -> Iterator[Finding]:
    holds = run.runs(releases)
    at, beside = places
    if holds is False or (holds is None and consequence == "silent"):
        return  # of two releases alone: nothing to say of the others
    yield Finding(
        f"{at.path} cannot stand beside {beside.path}",
        (at.label("refused"), beside.label("", primary=False)),
        (why, *(() if holds else (f"in {releases.replace(',', ' and ')}",))),
        "turn one of the two off",
        severity=None if holds else "warning",
        consequence=consequence,
    )


def _masked(run: LintContext, at: Place | None, kind: str) -> Iterator[Finding]:
    number = at.value if at is not None and isinstance(at.value, int | float) else None
    if at is None or number is None or number >= 1 or kind != "grpo":
        return
    found = (where(at.document, key) for key in _ENTROPY)
    beside = next((each for each in found if each is not None), None)
    if beside is not None:
        why = "Liger Kernels don't currently support masking token positions based on entropy"
        yield from _refused(run, (at, beside), why, _MASKED)


def _precomputed(run: LintContext, at: Place | None) -> Iterator[Finding]:
    stage = stage_of(run)
    if at is not None and stage.value == 3 and stage.place is not None:
        why = "You cannot use precompute_ref_log_probs with Deepspeed ZeRO-3"
        yield from _refused(run, (at, stage.place), why, _PRECOMPUTED)


def _selected(run: LintContext, document: Document) -> Iterator[Finding]:
    """What is kept of a recomputation is chosen by TRL's trainer of samples."""
    at, stage = where(document, _SELECTIVE), stage_of(run)
    if at is None or document.kind != "sft":
        return
    reentrant = where(document, "gradient_checkpointing_kwargs.use_reentrant=true")
    adapter = where(document, "use_peft")
    sharded = stage.place if stage.value == 3 and adapter is not None else None
    for beside in (reentrant, sharded):
        if beside is not None:
            yield from _refused(run, (at, beside), _NOT_REENTRANT, "trl>=1.15")


def _lengths(most: Place | None) -> Iterator[Finding]:
    completion = most.document.get("max_completion_length") if most is not None else None
    if most is None or not isinstance(most.value, int) or completion is None:
        return
    if isinstance(completion.value, int) and completion.value >= most.value:
        yield Finding(
            f"a completion of {completion.value} tokens in a context of {most.value}",
            (completion.label("never reached"), most.label("vLLM stops here", primary=False)),
            ("the prompt counts too: completions are cut off, and are masked or badly rewarded",),
            f"write {most.path} above max_completion_length and the longest prompt",
            severity="warning",
            consequence="silent",
        )
