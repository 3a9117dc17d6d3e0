"""Settings that some releases of TRL refuse together."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.key_releases import not_yet
from tunec.compiler.lints.rows import Row, found, reads_of
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.frozen import replace
from tunec.targets.scripts.trl_rewards import OWN_REWARDS

_STAGE_3: Final = "deepspeed:zero_optimization.stage=3"


def _pair(
    condition: str, other: str, why: str, releases: str, consequence: Consequence | None = None
) -> Row:
    """Two conditions that clash, why, and in which releases."""
    return Row(
        condition,
        "{0.path} cannot be combined with {1.path}",
        label="refused",
        why=why,
        help="remove {0.path}, or change {1.path}",
        beside=(other,),
        since=releases,
        files_only=True,
        consequence=consequence,
    )


_MASKS_LOST: Final = "packing keeps input_ids alone: tokens that should be masked are trained on"
_MASKS_DROPPED: Final = "columns that Liger's loss does not need are dropped, the masks with them"
_ASKED_AGAIN: Final = "Liger's loss runs the reference model at each step"
_HEAD_READ: Final = "Liger's loss reads the weight of lm_head itself, past its adapter"
_HEADS: Final = ("peft:target_modules~'lm_head'", "lora_target_modules~'lm_head'")
"""The head as an entry of a list: `all-linear` leaves it out."""
_CAP_WINS: Final = "the older key overwrites the new one"
_SILENT: Final = (
    replace(
        _pair(
            "grpo:vllm_importance_sampling_cap",
            "vllm_importance_sampling_clip_max",
            _CAP_WINS,
            "trl>=1.6",
            "silent",
        ),
        message="{1.path} is replaced by {0.path}",
        label="in force",
        help="remove vllm_importance_sampling_cap",
        severity="warning",
    ),
    _pair("sft:assistant_only_loss", "packing", _MASKS_LOST, "trl>=0.19,<0.20", "silent"),
    _pair("sft:completion_only_loss", "packing", _MASKS_LOST, "trl>=0.17,<0.20", "silent"),
    *(
        _pair(f"sft:{each}", "use_liger_kernel", _MASKS_DROPPED, "trl>=0.19,<0.20", "silent")
        for each in ("assistant_only_loss", "completion_only_loss")
    ),
    replace(
        _pair(
            "dpo:precompute_ref_log_probs",
            "use_liger_loss",
            _ASKED_AGAIN,
            "trl>=0.19,<0.29",
            "slow",
        ),
        message="{0.path} is read by nothing beside {1.path}",
        label="computed in vain",
        help="remove precompute_ref_log_probs",
        severity="warning",
    ),
    *(
        Row(
            "grpo:use_liger_kernel",
            "the adapter of lm_head is not trained beside {0.path}",
            "reads the frozen weight",
            _HEAD_READ,
            "remove lm_head from {1.path}, or turn {0.path} off",
            beside=(head,),
            since="trl>=0.28,<1.7",
            consequence="silent",
            severity="warning",
            files_only=True,
        )
        for head in _HEADS
    ),
    Row(
        "grpo:mask_truncated_completions=true",
        "mask_truncated_completions makes the loss smaller than it should be",
        "left out of the sum alone",
        "tokens of completions that were cut off still count in what dapo's loss is divided by",
        "use trl 1.9, or remove it",
        effective=("grpo:loss_type=dapo",),
        since="trl>=1.3,<1.9",
        consequence="silent",
        severity="warning",
    ),
    *(
        Row(
            f"grpo:importance_sampling_level=sequence & {loss}",
            "one ratio for each sequence, and a loss that sums tokens: long answers count more",
            "one ratio for a whole answer",
            "bnpo, dapo, dr_grpo and cispo add up tokens, so each answer counts by its length; "
            "GSPO averages within each answer first",
            "write loss_type: grpo",
            beside_label="adds up tokens",
            since="trl>=0.20",
            consequence="silent",
            severity="warning",
        )
        for loss in ("loss_type=bnpo|dapo|dr_grpo|cispo", "no loss_type")
    ),
)
"""Clashes without an error, which are reported only if a release is given."""
_BEFORE_LIGER: Final = "hinge|ipo|exo_pair|robust|bco_pair|aot|aot_pair"
"""DPO losses that Liger lacked in trl 0.19.1 to 0.27.2 trainer/dpo_trainer.py."""
_STREAMED: Final = "a stream has no length, and is not read twice"
_TWO_SIDED: Final = "does not support two-sided GRPO loss yet"
_TOKENS: Final = "Liger Kernels currently only support token-level importance sampling"
_NOT_REENTRANT: Final = "selective recomputation is not reentrant"
_SELECTED: Final = _pair(
    "sft:gradient_checkpointing_kwargs.selective=true",
    "gradient_checkpointing_kwargs.use_reentrant=true",
    _NOT_REENTRANT,
    "trl>=1.15",
)
_UNGATHERED: Final = Row(
    "grpo:ds3_gather_for_generation=false & use_vllm",
    "ds3_gather_for_generation: false cannot be combined with use_vllm",
    label="not compatible",
    why="vLLM needs whole weights, and nothing gathers those of ZeRO stage 3",
    help="leave it true, or generate without vLLM",
    consequence="step",
    effective=(f"({_STAGE_3})",),
)
_METHODS: Final = ("sft", "dpo", "kto", "grpo", "rloo", "reward")
_REWARDS: Final = (*OWN_REWARDS, "get_soft_overlong_punishment")
"""trl 0.18.0 to 1.16.0 scripts/grpo.py `reward_funcs_registry`: the latest has all of them."""
_KTO_ALONE: Final = "Only KTO loss is supported with liger-kernel"
_LIGER_AND_PEFT: Final = "Liger DPO loss is not implemented for PEFT models"
"""trl 0.29.0 `_compute_loss_liger`, 1.4.0 to 1.7.0 `__init__` of trainer/dpo_trainer.py, and of
experimental/kto/kto_trainer.py; 1.8.0 allows adapters that leave out lm_head. liger-kernel 0.6.3
chunked_loss/grpo_loss.py has no dapo, 0.6.4 has."""
_OF_HEAD: Final = tuple(
    _pair(f"{kind}:use_liger_kernel", head, _HEAD_READ, releases)
    for kind, releases in (("grpo", "trl>=1.7,<1.15"), ("dpo|kto", "trl>=1.8,<1.15"))
    for head in _HEADS
)
"""trl 1.7.0 to 1.14.0 trainer/grpo_trainer.py, 1.8.0 to 1.14.0 dpo_trainer.py and kto_trainer.py
`__init__`; later ones refuse the adapter with any loss (`head-adapted-in-preference-training`)."""
_PAIRS: Final = (
    *_OF_HEAD,
    _pair(
        "dpo:precompute_ref_log_probs",
        "use_liger_kernel",
        "Liger DPO loss does not support precomputing reference log probabilities",
        "trl>=0.29,<1.10",
    ),
    _pair("dpo:use_peft", "use_liger_kernel", _LIGER_AND_PEFT, "trl>=0.29,<1.4", "step"),
    _pair("dpo:use_peft", "use_liger_kernel", _LIGER_AND_PEFT, "trl>=1.4,<1.8"),
    *(
        _pair(f"kto:{condition}", "use_liger_kernel", why, releases)
        for condition, why, releases in (
            ("use_peft", "You cannot use it with Peft models", "trl>=0.29,<1.8"),
            ("loss_type=apo_zero_unpaired", _KTO_ALONE, "trl>=0.29,<1.9"),
        )
    ),
    *(
        _pair(
            "grpo:loss_type=dapo",
            f"{switch}",
            "liger-kernel before 0.6.4 knows no such type: Unknown loss type: dapo",
            "liger-kernel<0.6.4",
            "step",
        )
        for switch in ("use_liger_loss", "use_liger_kernel")
    ),
    _pair("dpo:precompute_ref_log_probs", "dataset_streaming", _STREAMED, "trl>=0.29"),
    _pair("kto:precompute_ref_log_probs", "dataset_streaming", _STREAMED, "trl>=1.8"),
    replace(
        _pair(
            "dpo|kto:precompute_ref_log_probs",
            "",
            "You cannot use precompute_ref_log_probs with Deepspeed ZeRO-3",
            "trl>=0.9,<0.29",
        ),
        beside=(),
        effective=(_STAGE_3,),
    ),
    _pair(
        f"dpo:loss_type={_BEFORE_LIGER}",
        "use_liger_loss",
        "Liger's loss has no such type",
        "trl>=0.19,<0.29",
    ),
    *(
        _pair(f"kto:{condition}", "use_liger_loss", why, "trl>=0.19,<0.29")
        for condition, why in (
            ("loss_type=apo_zero_unpaired", _KTO_ALONE),
            ("precompute_ref_log_probs", "Liger computes those of the reference itself"),
            ("use_peft", "You cannot use `use_liger_loss=True` with Peft models"),
        )
    ),
    _pair(
        "kto:train_sampling_strategy!=sequential",
        "loss_type|desirable_weight & no loss_type!=kto",
        "the term of its divergence is precomputed for neighbours in a fixed order",
        "trl>=1.9",
    ),
    _pair(
        "grpo|rloo:load_in_8bit",
        "vllm_mode=colocate & (use_vllm)",
        "vLLM does not support in-flight 8-bit quantization",
        "trl>=0.27",
    ),
    _pair(
        "ppo:stop_token",
        "stop_token_id",
        "You cannot set both `stop_token` and `stop_token_id`",
        "trl>=0.15",
    ),
    _pair(
        "sft|dpo|kto|grpo:liger_kernel_config.fused_linear_cross_entropy=true",
        "use_liger_kernel",
        "it replaces the model's forward, which the trainer patches with a head of its own",
        "trl>=1.16",
    ),
    _pair(
        "grpo:vllm_importance_sampling_mode=sequence_truncate|sequence_mask",
        "loss_type=vespo & (use_vllm)",
        "VESPO loss requires the mode to be token_truncate or token_mask",
        "trl>=1",
    ),
    _pair("grpo:delta", "use_liger_loss", f"Liger loss {_TWO_SIDED}", "trl>=0.18,<0.25"),
    _pair("grpo:delta", "use_liger_kernel", f"Liger kernel {_TWO_SIDED}", "trl>=0.25,<1.2"),
    *(
        _pair("grpo:importance_sampling_level=sequence", switch, _TOKENS, releases)
        for switch, releases in (
            ("use_liger_loss", "trl>=0.20,<0.26"),
            ("use_liger_kernel", "trl>=0.26,<1.0"),
        )
    ),
    _pair(
        "grpo:top_entropy_quantile<1",
        "use_liger_loss|use_liger_kernel",
        "Liger Kernels don't currently support masking token positions based on entropy",
        "trl>=0.20,<1.10",
    ),
    _SELECTED,
    replace(_SELECTED, beside=("(use_peft)",), effective=(_STAGE_3,)),
    Row(
        f"{'|'.join(_METHODS)}:env & no env{{}}",
        "env is no mapping",
        "refused",
        "each of its keys is a variable of the environment",
        "write each variable as NAME: value below env",
        since="trl>=0.17",
        consequence="parse",
    ),
    Row(
        "grpo:eval_on_start=true",
        "eval_on_start fails: GRPO divides its loss by a number that the first step sets",
        "before the first step",
        "AttributeError: the trainer has no current_gradient_accumulation_steps yet",
        "remove eval_on_start, or use trl 0.28",
        since="trl>=0.22,<0.27.1",
        consequence="step",
    ),
    *(
        Row(
            first,
            f"{method} cannot keep a reference model under FSDP 2",
            "a second model beside it",
            "TRL wraps the reference by FSDP 1, which the settings of FSDP 2 do not fit",
            "use trl 0.29, write fsdp_version: 1, or train an adapter",
            beside=(*lone, "accelerate:fsdp_config.fsdp_version=2"),
            beside_label="of FSDP 2",
            since="trl>=0.21,<0.29",
        )
        for method, first, lone in (
            (
                "DPO",
                "dpo:model_name_or_path",
                ("no use_peft=true", "no precompute_ref_log_probs=true"),
            ),
            ("GRPO", "grpo:beta>0", ("no use_peft=true",)),
        )
    ),
    _UNGATHERED,
    replace(_UNGATHERED, severity="warning", effective=(), beside=(f"no {_STAGE_3}",)),
)


@rule(
    "error",
    "init",
    consumers=("trl",),
    reads=(
        *reads_of((*_SILENT, *_PAIRS)),
        *keys("|".join(_METHODS), "datasets"),
        *keys("grpo", "max_completion_length", "reward_funcs"),
    ),
    unless="declared",
)
def trl_pair_of_some_releases(run: LintContext) -> Iterator[Finding]:
    """Two settings that TRL's trainers refuse together in some releases."""
    yield from found([each for each in _SILENT if run.runs(each.since)], run)
    yield from found(_PAIRS, run)
    for document in run.of("grpo"):
        named = ("vllm_max_model_length", "vllm_max_model_len")
        read = (document.get(each) for each in named if not_yet(run, "grpo", each) is None)
        most = next((each for each in read if each is not None), None)
        yield from _cut_off(document.get("max_completion_length"), most)

    for document in run.of("grpo", "rloo"):
        yield from _rewards(document)
    for document in run.of(*_METHODS):
        yield from _fractions(run, document)


def _rewards(document: Document) -> Iterator[Finding]:
    """A reward is one of TRL's own, or a dotted path to a function."""
    at = document.get("reward_funcs")
    named = at.value if at is not None and not document.is_view else None
    words = named if isinstance(named, list) else [named]
    lost = [each for each in words if isinstance(each, str) and not _is_reward(each)]
    if at is not None and lost:
        yield Finding(
            f"reward_funcs cannot hold {lost[0]}",
            (at.label("not found"),),
            (f"known: {quoted(sorted(_REWARDS))}, and a function of yours by its module",),
            "write module.function",
        )


def _is_reward(name: str) -> bool:
    return not name or "." in name or name in _REWARDS


def _fractions(run: LintContext, document: Document) -> Iterator[Finding]:
    """Some data sets of a mixture have a fraction, or the fraction is of a stream."""
    at = document.get("datasets")
    held = at.value if at is not None and isinstance(at.value, list) else []
    shares = [each.get("fraction") for each in held if isinstance(each, dict)]
    if at is None or document.is_view or not any(each is not None for each in shares):
        return
    if not run.runs("trl>=1.8"):
        return
    stream = where(document, "dataset_streaming=true")
    told = "a fraction of a stream" if stream is not None else ""
    if any(each is None for each in shares):
        told = "some data sets of the mixture have a fraction, others none"
    if told:
        labels = (at.label("refused"), *also(stream))
        why = "the fraction is of the number of samples, and holds for all data sets or for none"
        yield Finding(told, labels, (why,), "give each a fraction, or none")


def _cut_off(completion: Place | None, most: Place | None) -> Iterator[Finding]:
    if completion is None or most is None:
        return
    if not isinstance(completion.value, int) or not isinstance(most.value, int):
        return
    if completion.value >= most.value:
        yield Finding(
            f"a completion of {completion.value} tokens does not fit a context of {most.value}",
            (completion.label("never reached"), most.label("vLLM stops here", primary=False)),
            ("the prompt counts too: completions are cut off, and are masked or badly rewarded",),
            f"write {most.path} above max_completion_length and the longest prompt",
            severity="warning",
            consequence="silent",
        )
