"""Rows of ms-swift's own arguments: model, objective, data."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, constant, derived, fixed, in_no_plan, same
from tunec.schemas.frozen import replace
from tunec.targets.ms_swift.datasets import DATA_SETS
from tunec.targets.ms_swift.models import is_named, type_and_template
from tunec.targets.ms_swift.packages import METHODS, RELEASES, by_rlhf
from tunec.targets.ms_swift.rewards import KIND, REWARDED
from tunec.targets.read_only import named_word, observed, split_names
from tunec.targets.rows import (
    has_images,
    has_pairs,
    is_rewarded,
    is_supervised,
    row,
    scores_texts,
)

_MODEL: Final = "ms-swift 4.0.4 to 4.6.0 arguments/base_args/model_args.py `ModelArguments`"
_BASE: Final = "ms-swift 4.0.4 to 4.6.0 arguments/base_args/base_args.py `BaseArguments`"
_TEMPLATE: Final = "ms-swift 4.0.4 to 4.6.0 arguments/base_args/template_args.py"
_RLHF: Final = "ms-swift 4.0.4 to 4.6.0 arguments/rlhf_args.py `RLHFArguments`"


# ── objective and loss ───────────────────────────────────────────────────────────────────────────

_LOSSES: Final[Mapping[Any, tuple[tuple[str, ...], str, float]]] = {
    "dpo": (("sigmoid", "hinge", "ipo"), "sigmoid", 0.1),
    "grpo": (("grpo", "bnpo", "dr_grpo", "dapo"), "grpo", 0.04),
}
"""The losses of a method, and its default loss and beta: `_init_grpo`, `_set_default`."""


def _write_objective(plan: Plan) -> Mapping[str, Json]:
    """Write the method; without `rlhf_type` the file is one for `swift sft`."""
    word = METHODS.get(plan.objective.kind)
    return {} if word is None else {KIND: word}


def _write_beta(plan: Plan) -> Mapping[str, Json]:
    return {
        **_write_objective(plan),
        **({} if is_supervised(plan) else {"beta": plan.objective.beta}),
    }


def _objective(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """DPO, GRPO or a reward model; other methods have no slot value."""
    kind = found.get(KIND)
    known = {word: objective for objective, word in METHODS.items()}
    if kind is None:
        return {"objective.kind": "sft"}
    return {"objective.kind": known[kind]} if kind in known else {}


def _beta(found: Mapping[str, Json]) -> Mapping[str, Any]:
    kind = found.get(KIND)
    if kind is None:
        return {"objective.beta": 0.0}
    if kind not in _LOSSES:
        return {}
    beta, (_, _, usual) = found.get("beta"), _LOSSES[kind]
    return {"objective.beta": usual if beta is None else beta}


def _write_loss(plan: Plan) -> Mapping[str, Json]:
    if is_supervised(plan):
        return {}
    named = {} if scores_texts(plan) else {"loss_type": plan.objective.loss}
    return {**_write_objective(plan), **named}


def _loss(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The loss, if the method and a slot have it."""
    kind, said = found.get(KIND), found.get("loss_type")
    if kind is None:
        return {"objective.loss": "nll"}
    if kind == METHODS["reward"]:
        return {"objective.loss": "sigmoid"}
    known, usual, _ = _LOSSES.get(kind, ((), "", 0.0))
    losses = split_names(said if said is not None else usual)
    return {"objective.loss": losses[0]} if len(losses) == 1 and losses[0] in known else {}


def _write_reference(plan: Plan) -> Mapping[str, Json]:
    adapts, objective = plan.adapter.kind == "lora", plan.objective
    method = {KIND: objective.kind, "beta": objective.beta}
    return {**method, "tuner_type": "lora" if adapts else "full"}


def _reference(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The reference: with adapters the base, else a second model; `ref_model` has no slot."""
    other, kind = found.get("ref_model"), found.get(KIND)
    if kind not in _LOSSES or (other and other != found.get("model")):
        return {}
    if kind == "grpo" and found.get("beta", 0.04) == 0:
        return {"objective.reference": "none"}
    adapts = found.get("tuner_type", "lora") == "lora"
    return {"objective.reference": "base" if adapts else "resident"}


_SCORING: Final[Mapping[str, Any]] = {"model.kind": "sequence-classifier", "loss.path": "full"}
"""A model of one number, of which the loss is."""

OBJECTIVE: Final = (
    row(
        (KIND, "loss_type"),
        ("objective.kind",),
        _write_objective,
        _objective,
        f"{_RLHF}; `rlhf_type` is no flag of `swift sft`, `loss_type` one of both",
        absent=_objective({}),
        beside=("loss_type",),
    ),
    row(
        (KIND, "beta"),
        ("objective.beta",),
        _write_beta,
        _beta,
        f"{_RLHF} `_set_default`",
        absent=_beta({}),
        when=lambda plan: not scores_texts(plan),
        beside=(KIND,),
    ),
    row(
        ("loss_type", KIND),
        ("objective.loss",),
        _write_loss,
        _loss,
        f"{_RLHF} `_set_default`",
        absent=_loss({}),
        beside=(KIND,),
    ),
    row(
        ("rlhf_type", "tuner_type", "ref_model", "model", "beta"),
        ("objective.reference",),
        _write_reference,
        _reference,
        f"{_RLHF} `__post_init__`",
        when=lambda plan: by_rlhf(plan) and not scores_texts(plan),
    ),
    fixed("objective.beta", 0.0, f"{_RLHF} `_init_rm`: it has no reference", when=scores_texts),
    row(
        (KIND,),
        ("model.kind", "loss.path"),
        lambda _: {KIND: METHODS["reward"]},
        lambda found: _SCORING if found[KIND] == METHODS["reward"] else {},
        f"{_RLHF} `_init_rm`; rlhf_trainers/reward_trainer.py `compute_loss`",
        when=scores_texts,
    ),
    row(
        ("use_liger_kernel",),
        ("loss.path",),
        lambda plan: {"use_liger_kernel": True} if plan.loss.path == "fused" else {},
        lambda found: {"loss.path": "fused" if found["use_liger_kernel"] is True else "full"},
        "ms-swift 4.0.4 to 4.6.0 trainers/seq2seq_trainer.py `compute_loss`",
        absent={"loss.path": "full"},
        when=is_supervised,
    ),
    *REWARDED,
)


# ── which model ──────────────────────────────────────────────────────────────────────────────────


def _kind_and_template(release: str, until: str | None) -> tuple[Entry, Entry]:
    """The rows of model type and template, which the parser cannot infer from an unknown name."""

    def of(part: int) -> Any:
        def write(plan: Plan) -> str | None:
            found = None if is_named(plan, release) else type_and_template(plan)
            return None if found is None else found[part]

        return write

    source = f"ms-swift {release} model/model_meta.py `get_model_info_meta`, template/register.py"
    keys = enumerate(("model_type", "template"))
    kind, template = (derived(key, of(n), source, since=release, until=until) for n, key in keys)
    return replace(kind, yields=True), replace(template, yields=True)


_EACH: Final = zip(RELEASES, (*RELEASES[1:], None), strict=True)
_ATTENTION: Final = {
    "flash_attention_2": "flash_attention_2",
    "flash_attn": "flash_attention_2",
    "sdpa": "sdpa",
    "eager": "eager",
}
MODEL: Final = (
    same("model", "model.path", _MODEL),
    constant("use_hf", True, f"{_BASE}: else names are those of ModelScope"),
    *(each for since, until in _EACH for each in _kind_and_template(since, until)),
    row(
        ("attn_impl",),
        ("attention.implementation",),
        lambda plan: {"attn_impl": plan.attention.implementation},
        named_word(_ATTENTION, "attn_impl", "attention.implementation"),
        f"{_MODEL}: absent, the model's own",
    ),
)


# ── data ─────────────────────────────────────────────────────────────────────────────────────────


def _pixels(plan: Plan) -> int:
    return plan.data.image_width * plan.data.image_height


def _length() -> tuple[Entry, Entry]:
    """The rows of the bound on tokens, which counts those of images."""
    source = f"{_TEMPLATE}; template/base.py `encode`"

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        """The sequence; with rewards the bound is one of the prompt."""
        is_all = found.get(KIND) != "grpo" and found.get("max_length") is not None
        return {"data.sequence": found["max_length"]} if is_all else {}

    return (
        row(
            ("max_length", KIND),
            ("data.sequence",),
            lambda plan: {"max_length": plan.data.sequence},
            read,
            source,
            when=lambda plan: not (has_images(plan) or is_rewarded(plan)),
            beside=(KIND,),
        ),
        derived(
            "max_length",
            lambda plan: plan.data.sequence + plan.data.image_tokens,
            source,
            when=has_images,
        ),
    )


DATA: Final = (
    *DATA_SETS,
    derived(
        "columns",
        lambda _: {"chosen": "response", "rejected": "rejected_response"},
        "ms-swift 4.0.4 to 4.6.0 dataset/preprocessor/core.py `ResponsePreprocessor`, which takes "
        "`prompt` by itself",
        when=has_pairs,
    ),
    derived(
        "use_chat_template",
        lambda plan: False if plan.data.format == "prompt-completion" else None,
        f"{_TEMPLATE}; template/template_meta.py `to_generate_template_meta`: texts one behind the "
        "other, and the end",
    ),
    *_length(),
    derived(
        "truncation_strategy",
        lambda plan: "left" if is_rewarded(plan) else "right",
        f"{_TEMPLATE}: absent, samples that are too long are left out; {_RLHF} `_init_grpo`",
    ),
    same("packing", "data.packing", _BASE, default=False),
    derived(
        "max_pixels",
        _pixels,
        f"{_TEMPLATE}; template/base.py: larger images are made so small",
        when=has_images,
    ),
    observed(
        ("sequence_parallel_size",),
        ("parallel.sequence",),
        lambda found: {"parallel.sequence": found["sequence_parallel_size"]},
        _TEMPLATE,
        absent={"parallel.sequence": 1},
        when=in_no_plan,
    ),
)
