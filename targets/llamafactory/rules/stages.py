"""Options of another stage or method of LLaMA-Factory."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.conditions import Need, first_keys, in_words, lacking, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.kinds import is_fragment
from tunec.compiler.lints.rows import Row, found, rows
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace

_OF_A_STAGE: Final = tuple(
    Row(
        f"llamafactory:{key}=true",
        "LLaMA-Factory refuses {0.key} in stage {1.value}",
        "refused",
        help="remove it",
        beside=(stage,),
        files_only=True,
    )
    for key, stage in (
        *(("neat_packing", "stage!=sft"), ("train_on_prompt", "stage!=sft")),
        *(("mask_history", "stage!=sft"), ("predict_with_generate", "stage!=sft")),
        *(("load_best_model_at_end", "stage=rm|ppo"), ("pissa_init", "stage=ppo|kto")),
    )
)


@rule("error", "parse", consumers=("llamafactory",), reads=("llamafactory:stage",))
def refused_outside_its_stage(run: LintContext) -> Iterator[Finding]:
    """An option that LLaMA-Factory accepts in one stage only."""
    yield from found(_OF_A_STAGE, run)
    for document in run.of("llamafactory"):
        stage = document.get("stage")
        if document.is_view or stage is None:
            continue
        if stage.value == "ppo" and document.get("reward_model") is None:
            yield Finding(
                "stage ppo has no reward_model",
                (stage.label("needs one"),),
                (),
                "name the reward model",
                severity="warning" if is_fragment(document) else None,
            )


_LATE: Final = "llamafactory>=0.9.4"
_ASKED: Final = "trl>=0.20"
_OTHERS: Final = ("hinge", "ipo")
"""LLaMA-Factory's losses that are not computed: sigmoid is the default, orpo and simpo are computed
by LLaMA-Factory itself, and `dpo-loss-unknown` checks kto_pair."""


@rule("error", "silent", consumers=("llamafactory",), reads=("llamafactory:pref_loss",))
def preference_loss_not_computed(run: LintContext) -> Iterator[Finding]:
    """A preference loss that LLaMA-Factory accepts and TRL does not compute."""
    for document in run.of("llamafactory"):
        at, stage = document.get("pref_loss"), document.value("stage")
        if at is None or document.is_view or stage != "dpo" or at.value not in _OTHERS:
            continue
        if run.runs(_LATE) is not False and run.runs(_ASKED) is not False:
            yield _as_sigmoid(run, at)


def _as_sigmoid(run: LintContext, at: Place) -> Finding:
    is_named = run.runs(_LATE) is True
    late = () if is_named else ("since LLaMA-Factory 0.9.4; no version is given",)
    return Finding(
        f"pref_loss {at.value} is trained as sigmoid",
        (at.label("not passed on"),),
        (
            "from 0.20 on TRL's dpo_loss gets the loss as an argument, by default sigmoid",
            "LLaMA-Factory calls it without one",
            *late,
        ),
        "use LLaMA-Factory 0.9.3, or TRL below 0.20",
        severity=None if is_named else "warning",
    )


_FREEZE: Final = ("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules")
_OFT: Final = ("oft_rank", "oft_block_size", "oft_target")
_PPO: Final = ("buffer_size", "epochs", "score_norm", "target", "whiten_rewards")
_GALORE: Final = ("target", "rank", "update_interval", "scale", "proj_type", "layerwise")
_APOLLO: Final = (*_GALORE, "proj", "scale_type", "scale_front")
_BADAM: Final = (
    *("mode", "start_block", "switch_mode", "switch_interval", "update_ratio", "mask_mode"),
    "verbose",
)
_FOUR: Final = "Unsloth loads 4 bits, or unquantised weights"
_PAIRED: Final = ("stage=dpo", "stage=kto")

_NEEDS: Final = (
    *(Need(key, ("finetuning_type=freeze", "use_llama_pro")) for key in _FREEZE),
    *(Need(key, ("finetuning_type=oft",)) for key in _OFT),
    *(Need(f"ppo_{key}", ("stage=ppo",)) for key in _PPO),
    *(Need(f"galore_{key}", ("use_galore",)) for key in _GALORE),
    *(Need(f"apollo_{key}", ("use_apollo",)) for key in _APOLLO),
    *(Need(f"badam_{key}", ("use_badam",)) for key in _BADAM),
    Need("reward_model", ("stage=ppo",)),
    Need("kto_chosen_weight", ("stage=kto",)),
    Need("kto_rejected_weight", ("stage=kto",)),
    Need("pref_loss", ("stage=dpo",)),
    Need("pref_beta", _PAIRED),
    Need("pref_ftx", _PAIRED),
    Need("pref_bco_weight", ("stage=dpo",)),
    Need("simpo_gamma", ("pref_loss=simpo",)),
    Need("loraplus_lr_embedding", ("loraplus_lr_ratio",)),
    Need("pissa_iter", ("pissa_init",)),
    Need("pissa_convert", ("pissa_init",)),
    Need("packing=false & neat_packing", ("neat_packing=false",), "neat packing turns it on"),
    Need("packing=true & stage=dpo", ("stage=sft", "stage=pt"), "pairs are not packed"),
    Need("packing=true & stage=kto", ("stage=sft", "stage=pt"), "pairs are not packed"),
    Need("packing=true & stage=rm", ("stage=sft", "stage=pt"), "pairs are not packed"),
    Need("ref_model_adapters", ("ref_model",), "without ref_model the reference is the base"),
    Need(
        "ref_model_quantization_bit",
        ("ref_model",),
        "the base is not quantised again as a reference",
    ),
    Need("reward_model_adapters", ("reward_model",)),
    Need("reward_model_quantization_bit", ("reward_model",)),
    Need(
        "use_unsloth_gc & disable_gradient_checkpointing=true",
        ("disable_gradient_checkpointing=false",),
        "nothing is recomputed",
    ),
    Need(
        "use_reentrant_gc & disable_gradient_checkpointing=true",
        ("disable_gradient_checkpointing=false",),
        "nothing is recomputed",
    ),
    Need("quantization_bit=8 & use_unsloth", ("use_unsloth=false",), _FOUR),
    Need("fp8_enable_fsdp_float8_all_gather", ("fp8",)),
    Need("fp8_backend", ("fp8",)),
    Need(
        "quantization_type & quantization_bit", ("quantization_bit=4",), "8 bits have a single type"
    ),
    Need(
        "double_quantization=true & quantization_bit",
        ("quantization_bit=4",),
        "8 bits have no double quantisation",
    ),
)
"""Keys that are read only if one of the conditions holds."""


_STAGES: Final = ("pt", "sft", "rm", "ppo", "dpo", "kto")
"""llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py `stage`: forks have more of them."""


@rule(
    "warning",
    "silent",
    consumers=("llamafactory",),
    reads=(
        *first_keys("llamafactory", _NEEDS),
        "llamafactory:resume_from_checkpoint",
        "llamafactory:ref_model",
    ),
)
def option_of_another_choice(run: LintContext) -> Iterator[Finding]:
    """An option of a method, loss or optimizer that is not the selected one."""
    for document in run.of("llamafactory"):
        if document.is_view:
            continue
        for need in _NEEDS if document.value("stage", "sft") in _STAGES else ():
            yield from _of_another_choice(run, document, need)
        yield from _resumed(document)
        reference, loss = where(document, "ref_model & stage=dpo"), document.get("pref_loss")
        if reference is not None and loss is not None and loss.value in ("orpo", "simpo"):
            yield Finding(
                f"ref_model does nothing with pref_loss {loss.value}",
                (reference.label("not loaded"), loss.label("", primary=False)),
                ("that loss has no reference",),
                "remove it",
                Fix((reference.removed(),), "safe"),
            )


def _resumed(document: Document) -> Iterator[Finding]:
    """Reward models and PPO do not resume, unless an adapter is continued."""
    at, stage = where(document, "resume_from_checkpoint"), document.get("stage")
    kind = document.value("finetuning_type", "lora")
    if at is None or stage is None or stage.value not in ("rm", "ppo"):
        return
    if kind in ("full", "freeze"):
        yield Finding(
            f"resume_from_checkpoint does nothing in stage {stage.value} of {kind}",
            (at.label("training begins anew"), stage.label("", primary=False)),
            ("Cannot resume from checkpoint in current stage",),
            "name the checkpoint as model_name_or_path",
        )


def _of_another_choice(run: LintContext, document: Document, need: Need) -> Iterator[Finding]:
    lost = lacking(run, document, need)
    if lost is None:
        return
    at, beside = lost
    yield Finding(
        f"{at.path} does nothing without {' or '.join(in_words(each) for each in need.others[:2])}",
        (at.label("not read"), *also(beside)),
        (need.why,) if need.why else (),
        f"remove it, or write {in_words(need.others[0])}",
    )


_REFUSED: Final = Row(
    "",
    "LLaMA-Factory refuses {0.key} with finetuning_type {1.value}",
    "refused",
    help="remove it, or change finetuning_type",
    files_only=True,
)
_ONLY_LORA: Final = ("use_rslora", "use_dora", "pissa_init", "loraplus_lr_ratio")
_FULL: Final = ("use_galore", "use_apollo", "use_badam")


lora_options_of_another_method = rows(
    "lora-options-of-another-method",
    "error",
    "parse",
    consumers=("llamafactory",),
    rows=(
        *(
            replace(
                _REFUSED, when=f"llamafactory:{key}", beside=("finetuning_type=full|freeze|oft",)
            )
            for key in ("adapter_name_or_path", *(f"{each}!=false" for each in _ONLY_LORA))
        ),
        *(
            row
            for key in _FULL
            for row in (
                replace(
                    _REFUSED, when=f"llamafactory:{key}!=false", beside=("finetuning_type=lora",)
                ),
                replace(
                    _REFUSED,
                    when=f"llamafactory:{key}!=false",
                    message="LLaMA-Factory refuses {0.key} with finetuning_type lora, the default",
                    beside=("no finetuning_type",),
                ),
            )
        ),
    ),
)


_SWITCH: Final = "freeze_multi_modal_projector"
_OF_LANGUAGE: Final = frozenset(
    {
        *("all", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        *("qkv_proj", "gate_up_proj", "query_key_value", "c_attn", "W_pack", "wqkv"),
    }
)
"""Names of layers that occur in no projector."""


@rule("warning", "silent", consumers=("llamafactory>=0.9.2",), reads=(f"llamafactory:{_SWITCH}",))
def projector_not_adapted(run: LintContext) -> Iterator[Finding]:
    """The projector is to be trained, and LoRA targets other layers."""
    for document in run.of("llamafactory"):
        at, method = document.get(_SWITCH), document.get("finetuning_type")
        if at is None or at.value is not False or not _is_lora(document):
            continue
        if document.value("freeze_vision_tower") is False or document.get("additional_target"):
            continue
        targets = _words(document.value("lora_target") or "all")
        if not targets or not targets <= _OF_LANGUAGE:
            continue
        yield Finding(
            f"{_SWITCH} is false, and LoRA leaves the projector as it is",
            (at.label("not trained"), *also(method)),
            (
                (
                    "the switch frees it for full and freeze tuning; LoRA's own list of linear "
                    "layers, `all`, leaves projectors out"
                ),
            ),
            "write additional_target: multi_modal_projector (merger for Qwen-VL)",
        )


def _is_lora(document: Document) -> bool:
    """Whether the method is LoRA, the default, with known targets."""
    return document.value("finetuning_type") in (None, "lora") and not document.unknown & {
        "finetuning_type",
        "lora_target",
        "additional_target",
    }


def _words(said: Any) -> frozenset[str]:
    if isinstance(said, str):
        said = said.split(",")
    return frozenset(str(each).strip() for each in said) if isinstance(said, list) else frozenset()


_SLOW: Final = "torch>=2.9,<2.10"
_SEEING: Final = re.compile(r"(?i)qwen(?:2|2\.5|3)-(?:vl|omni)|glm-4\.[156]v")
"""Models whose towers begin with a convolution over time and space: `nn.Conv3d` in transformers
4.57.6 models/qwen2_vl, qwen2_5_vl, qwen3_vl, qwen2_5_omni and glm4v."""


@rule(
    "error",
    "load",
    consumers=("llamafactory>=0.9.5",),
    reads=keys("llamafactory", "model_name_or_path"),
)
def torch_with_slow_convolutions(run: LintContext) -> Iterator[Finding]:
    """A model with convolutions over three dimensions under torch 2.9, which runs them slowly."""
    at = run.said("llamafactory", "model_name_or_path")
    is_refused = run.runs("llamafactory>=0.9.5") and run.runs(_SLOW)
    if at is not None and is_refused and _SEEING.search(str(at.value)):
        yield Finding(
            f"LLaMA-Factory refuses {at.value} under {run.release('torch')}",
            (at.label("has a Conv3d"),),
            ("torch 2.9 runs Conv3d many times slower than 2.8 and 2.10: ValueError",),
            "install torch 2.8, or 2.10 and later",
        )
