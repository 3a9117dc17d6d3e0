"""Rows of Axolotl's YAML for the model, its attention and loss, and the objective."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, constant, fixed, same
from tunec.targets.axolotl.adapter import REWARDS_TEXTS, write_kind
from tunec.targets.axolotl.packages import WRITTEN
from tunec.targets.axolotl.rewards import BETA, REWARDED, weight
from tunec.targets.read_only import observed
from tunec.targets.rows import is_of_pairs, is_rewarded, is_supervised, row, scores_texts

_MODEL: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/model.py `ModelInputConfig`"
_CONFIG: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/config.py `AxolotlInputConfig`"
_ONE_KEY: Final = "0.17"
"""The first release with `normalize_attn_implementation`; before, some code reads the flags."""


# ── attention ────────────────────────────────────────────────────────────────────────────────────

_FLAGS: Final = {
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}


def _attention(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The attention of the first flag that is on; no slot stands for others, such as xformers."""
    word = found.get("attn_implementation")
    if word is None:
        word = next((_FLAGS[key] for key in _FLAGS if found.get(key)), None)
    return {} if word is None else {"attention.implementation": word}


def _write_flag(plan: Plan) -> Mapping[str, Json]:
    wanted = plan.attention.implementation
    return {flag: True for flag, word in _FLAGS.items() if word == wanted}


_ATTENTION: Final = (
    observed(
        tuple(_FLAGS),
        ("attention.implementation",),
        _attention,
        f"{_CONFIG}; absent it is the model's own",
        until=WRITTEN,
    ),
    row(
        ("attn_implementation", *_FLAGS),
        ("attention.implementation",),
        _write_flag,
        _attention,
        f"{_CONFIG}; loaders/model.py `_configure_embedding_dtypes` reads the flags",
        since=WRITTEN,
        until=_ONE_KEY,
    ),
    row(
        ("attn_implementation", *_FLAGS),
        ("attention.implementation",),
        lambda plan: {"attn_implementation": plan.attention.implementation},
        _attention,
        f"{_CONFIG} `normalize_attn_implementation`: the flags are its older names",
        since=_ONE_KEY,
    ),
)


# ── weights that are published quantised ─────────────────────────────────────────────────────────

_FORM: Final = "model_quantization_config"
_EXPANDS: Final = f"{_FORM}_kwargs.dequantize"
_CLASSES: Final = {"mxfp4": "Mxfp4Config", "fp8": "FineGrainedFP8Config"}
FP8: Final = "0.19"
"""The first release whose files can express FP8; FineGrainedFP8Config is accepted from 0.17 on."""


def _write_published(plan: Plan) -> Mapping[str, Json]:
    """Expand the published weights: packed ones do not train, though Axolotl could keep them."""
    form = plan.model.published
    return {_FORM: _CLASSES[form], _EXPANDS: True} if form in _CLASSES else {}


def _published(found: Mapping[str, Json]) -> Mapping[str, Any]:
    named = (form for form, word in _CLASSES.items() if word == found.get(_FORM))
    form = next(named, None)
    return {"model.published": form} if form and found.get(_EXPANDS) is True else {}


MODEL: Final = (
    same("base_model", "model.path", _MODEL),
    same("trust_remote_code", "model.trust_remote_code", _MODEL, default=False),
    row(
        (_FORM, _EXPANDS),
        ("model.published",),
        _write_published,
        _published,
        f"{_MODEL}; loaders/model.py `_set_quantization_config`; FineGrainedFP8Config from 0.17",
        since=WRITTEN,
        absent={"model.published": "none"},
    ),
    *_ATTENTION,
)


# ── objective ────────────────────────────────────────────────────────────────────────────────────

_DPO: Final = "axolotl 0.13.2 to 0.19.0 core/builders/rl.py, core/trainers/dpo/__init__.py"
_REFERENCE: Final = f"{_DPO}; train.py `setup_reference_model`: with adapters none is loaded"


_USUAL_BETA: Final = {"dpo": 0.1, "grpo": 0.0}
"""The weight that TRL's class takes where Axolotl gives none: trl 0.24.0 to 1.16.0
trainer/dpo_config.py, grpo_config.py."""


_OF_EVERY_STEP: Final = "process_reward_model"
"""The switch for training a model that rewards each step of an answer."""


def _write_objective(plan: Plan) -> Mapping[str, Json]:
    """The key of the objective; SFT has none."""
    if scores_texts(plan):
        return {REWARDS_TEXTS: True}
    return {} if is_supervised(plan) else {"rl": plan.objective.kind}


def _write_beta(plan: Plan) -> Mapping[str, Json]:
    if is_supervised(plan):
        return {}
    key = BETA if is_rewarded(plan) else "rl_beta"
    return {"rl": plan.objective.kind, key: plan.objective.beta}


def _objective(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The objective by `rl`, which KTO and others have too: they have no slot.

    Without it, and without a switch of its own, training is SFT.
    """
    word = found.get("rl")
    if word is None and found.get(_OF_EVERY_STEP):
        return {}
    if word is None:
        return {"objective.kind": "reward" if found.get(REWARDS_TEXTS) else "sft"}
    return {"objective.kind": word} if word in _USUAL_BETA else {}


def _beta(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The weight of the reference; without `rl` there is none."""
    word = found.get("rl")
    if word is None:
        return {"objective.beta": 0.0}
    known = word in _USUAL_BETA
    return {"objective.beta": weight(found, _USUAL_BETA[word])} if known else {}


def _read_losses(found: Mapping[str, Json]) -> Mapping[str, Any]:
    said = found["dpo_loss_type"]
    return {"objective.loss": said[0]} if isinstance(said, list) and len(said) == 1 else {}


_BEFORE: Final = "precompute_ref_log_probs"


def _write_reference(plan: Plan) -> Mapping[str, Json]:
    """The key of the reference, with the keys that determine the trainer's default."""
    before = plan.objective.reference == "precomputed"
    return {"rl": "dpo", **write_kind(plan), **({_BEFORE: True} if before else {})}


def _read_reference(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get("rl") != "dpo":
        return {}
    if found.get(_BEFORE) is True:
        return {"objective.reference": "precomputed"}
    return {"objective.reference": "base" if found.get("adapter") else "resident"}


def _reference(keys: tuple[str, ...], since: str | None, until: str | None = None) -> Entry:
    return row(
        keys,
        ("objective.reference",),
        _write_reference,
        _read_reference,
        _REFERENCE,
        since=since,
        until=until,
        absent={"objective.reference": "resident"},
        when=is_of_pairs,
    )


_PAIRS: Final = (
    fixed("objective.loss", "sigmoid", f"{_DPO}, before 0.17", until="0.17", when=is_of_pairs),
    row(
        ("dpo_loss_type",),
        ("objective.loss",),
        lambda plan: {"dpo_loss_type": [plan.objective.loss]},
        _read_losses,
        f"{_DPO} `set_training_args_kwargs`",
        since="0.17",
        absent={"objective.loss": "sigmoid"},
        when=is_of_pairs,
    ),
    _reference(("adapter", "rl"), None, "0.16"),
    _reference((_BEFORE, "adapter", "rl"), "0.16"),
)


# ── a reward model ───────────────────────────────────────────────────────────────────────────────

_TRAINER: Final = "axolotl 0.13.2 to 0.19.0 core/builders/causal.py: trl's RewardTrainer"
_LOSS: Final = {"objective.loss": "sigmoid", "loss.path": "full"}
_BY_ITSELF: Final = (
    "axolotl 0.16.1 to 0.19.0 utils/schemas/validation.py `set_reward_model_defaults`, which "
    "earlier releases lack"
)


def _write_head(_: Plan) -> Mapping[str, Json]:
    return {REWARDS_TEXTS: True, "num_labels": 1}


def _head(found: Mapping[str, Json]) -> Mapping[str, Any]:
    is_one = found.get("num_labels", 1) == 1
    return {"model.kind": "sequence-classifier"} if found.get(REWARDS_TEXTS) and is_one else {}


_SCORING: Final = (
    row(
        ("num_labels", REWARDS_TEXTS),
        ("model.kind",),
        _write_head,
        _head,
        f"{_BY_ITSELF}; loaders/utils.py `load_model_config`",
        when=scores_texts,
        beside=(REWARDS_TEXTS,),
    ),
    constant(
        "type_of_model",
        "AutoModelForSequenceClassification",
        f"{_BY_ITSELF}; loaders/model.py `_build_model`; model_type is another name of it",
        when=scores_texts,
    ),
    fixed("objective.beta", 0.0, f"{_TRAINER}: it has no reference", when=scores_texts),
    row(
        (REWARDS_TEXTS,),
        ("objective.loss", "loss.path"),
        lambda _: {REWARDS_TEXTS: True},
        lambda found: _LOSS if found[REWARDS_TEXTS] else {},
        f"{_TRAINER}, whose loss is of the one number that the head gives",
        when=scores_texts,
    ),
)


# ── loss ─────────────────────────────────────────────────────────────────────────────────────────

_LIGER_LOSS: Final = "liger_fused_linear_cross_entropy"
_OTHER_LOSSES: Final = ("cut_cross_entropy", "chunked_cross_entropy")
_LIGER: Final[Mapping[str, Json]] = {
    "plugins": ["axolotl.integrations.liger.LigerPlugin"],
    "liger_rope": True,
    "liger_rms_norm": True,
    "liger_glu_activation": True,
    _LIGER_LOSS: True,
}
"""The patches of liger-kernel 0.6.4 to 0.8.1 transformers/monkey_patch.py that are on by
default."""


def _path(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Whether Liger fuses the loss; two other integrations compute logits in their own pieces."""
    if found.get("rl") is not None or any(found.get(key) for key in _OTHER_LOSSES):
        return {}
    return {"loss.path": "fused" if found.get(_LIGER_LOSS) is True else "full"}


OBJECTIVE: Final = (
    row(
        ("rl", REWARDS_TEXTS, _OF_EVERY_STEP),
        ("objective.kind",),
        _write_objective,
        _objective,
        f"{_CONFIG}; core/builders/rl.py",
        absent=_objective({}),
    ),
    row(
        ("rl", "rl_beta", BETA),
        ("objective.beta",),
        _write_beta,
        _beta,
        f"{_CONFIG}; core/builders/rl.py",
        absent=_beta({}),
        when=lambda plan: not scores_texts(plan),
    ),
    fixed("objective.loss", "nll", f"{_CONFIG}: without `rl`", when=is_supervised),
    *_PAIRS,
    *REWARDED,
    *_SCORING,
    row(
        (_LIGER_LOSS, *_OTHER_LOSSES, "rl", *(key for key in _LIGER if key != _LIGER_LOSS)),
        ("loss.path",),
        lambda plan: _LIGER if plan.loss.path == "fused" else {},
        _path,
        "axolotl 0.8.1 to 0.19.0 integrations/liger/args.py `LigerArgs`",
        absent={"loss.path": "full"},
        when=is_supervised,
    ),
)
