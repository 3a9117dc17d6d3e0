"""An option of a method, loss or optimizer that is not the one that was chosen."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.conditions import Need, lacking, told, where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FREEZE: Final = ("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules")
_OFT: Final = ("oft_rank", "oft_block_size", "oft_target")
_PPO: Final = ("buffer_size", "epochs", "score_norm", "target", "whiten_rewards")
_GALORE: Final = ("target", "rank", "update_interval", "scale", "proj_type", "layerwise")
_APOLLO: Final = (*_GALORE, "proj", "scale_type", "scale_front")
_BADAM: Final = (
    *("mode", "start_block", "switch_mode", "switch_interval", "update_ratio", "mask_mode"),
    "verbose",
)
_FOUR: Final = "Unsloth loads 4 bits, or the weights as they are"
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
    Need("ref_model_quantization_bit", ("ref_model",), "a reference made of the base is as it is"),
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
    Need("quantization_type & quantization_bit", ("quantization_bit=4",), "8 bits have one kind"),
    Need(
        "double_quantization=true & quantization_bit", ("quantization_bit=4",), "8 bits have none"
    ),
)
"""Read only where one of the others holds."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        if document.is_view:
            continue
        for need in _NEEDS:
            yield from _of(run, document, need)
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
    """Reward models and PPO begin anew, unless it is an adapter that goes on."""
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


def _of(run: Run, document: Document, need: Need) -> Iterator[Finding]:
    found = lacking(run, document, need)
    if found is None:
        return
    at, beside = found
    yield Finding(
        f"{at.path} does nothing without {' or '.join(told(each) for each in need.others[:2])}",
        (at.label("not read"), *([beside.label("", primary=False)] if beside else [])),
        (need.why,) if need.why else (),
        f"remove it, or write {told(need.others[0])}",
    )


RULE = Rule(
    name="option-of-another-choice",
    severity="warning",
    consequence="silent",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 model/adapter.py `_setup_freeze_tuning`, "
            "`_setup_lora_tuning`; train/trainer_utils.py `_create_galore_optimizer`, "
            "`_create_apollo_optimizer`, `_create_badam_optimizer`, `_create_loraplus_optimizer`; "
            "train/dpo/trainer.py, train/kto/trainer.py, train/ppo/workflow.py: each reads its own "
            "keys; hparams/finetuning_args.py `use_ref_model`; data/loader.py `_get_preprocessed_"
            "dataset`: packing of sft and pt alone; model/model_utils/quantization.py, "
            "unsloth.py `_get_unsloth_kwargs`, checkpointing.py `prepare_model_for_training`; "
            "train/trainer_utils.py `create_ref_model`; hparams/parser.py `get_train_args`"
        ),
    ),
    check=_check,
)
