"""Rows of LLaMA-Factory's own arguments: model, objective, data."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.plan import Plan
from tunec.compiler.lints.kinds import EXPLAINED
from tunec.compiler.target import Entry, Json, constant, derived, fixed, in_no_plan, same
from tunec.schemas.frozen import replace
from tunec.targets.llamafactory import user_data
from tunec.targets.llamafactory.datasets import NAMES, is_explained
from tunec.targets.llamafactory.packages import WRITTEN
from tunec.targets.llamafactory.templates import ENDS_ONCE, template_names, templates_of
from tunec.targets.read_only import named_word, observed, split_names
from tunec.targets.rows import (
    TRAINING_DATA,
    evaluates,
    has_images,
    is_of_pairs,
    is_supervised,
    length,
    row,
    training_parts,
)

_MODEL: Final = "llamafactory 0.9.1 to 0.9.5 hparams/model_args.py `ModelArguments`"
_DATA: Final = "llamafactory 0.9.1 to 0.9.5 hparams/data_args.py `DataArguments`"
_TUNING: Final = "llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py `FinetuningArguments`"
_PARSER: Final = "llamafactory 0.9.1 to 0.9.5 hparams/parser.py `get_train_args`"


# ── objective and loss ───────────────────────────────────────────────────────────────────────────

_STAGES: Final = {"sft": "sft", "dpo": "dpo"}
_PAIR_LOSSES: Final = ("sigmoid", "hinge", "ipo")


def _write_objective(plan: Plan) -> Mapping[str, Json]:
    """Write the stage; its stages for rewards are not GRPO."""
    if is_supervised(plan):
        return {"stage": "sft"}
    if plan.objective.kind not in _STAGES:
        return {}
    return {"stage": "dpo", "pref_loss": plan.objective.loss, "pref_beta": plan.objective.beta}


def _objective(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Supervised training, or DPO with a reference; other stages have no slot value."""
    stage = _STAGES.get(str(found.get("stage", "sft")))
    loss = found.get("pref_loss", "sigmoid")
    if stage == "sft":
        return {"objective.kind": "sft", "objective.loss": "nll", "objective.beta": 0.0}
    if stage is None or loss not in _PAIR_LOSSES:
        return {}
    beta = {"objective.beta": found.get("pref_beta", 0.1)}
    return {"objective.kind": stage, "objective.loss": loss, **beta}


def _write_reference(plan: Plan) -> Mapping[str, Json]:
    return {"stage": "dpo", "finetuning_type": "lora" if plan.adapter.kind == "lora" else "full"}


def _reference(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The reference: with adapters the base, else a second model; `ref_model` has no slot."""
    if found.get("stage") != "dpo" or found.get("ref_model"):
        return {}
    adapts = found.get("finetuning_type", "lora") == "lora"
    return {"objective.reference": "base" if adapts else "resident"}


def _write_path(plan: Plan) -> Mapping[str, Json]:
    return {"enable_liger_kernel": True, "stage": "sft"} if plan.loss.path == "fused" else {}


def _path(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Liger's fused loss, if the stage needs no logits."""
    on = found.get("enable_liger_kernel") is True
    supervised = found.get("stage", "sft") in ("pt", "sft")
    return {"loss.path": "fused" if on and supervised else "full"}


OBJECTIVE: Final = (
    row(
        ("stage", "pref_loss", "pref_beta"),
        ("objective.kind", "objective.loss", "objective.beta"),
        _write_objective,
        _objective,
        _TUNING,
        absent=_objective({}),
    ),
    row(
        ("stage", "finetuning_type", "ref_model"),
        ("objective.reference",),
        _write_reference,
        _reference,
        "llamafactory 0.9.1 to 0.9.5 train/trainer_utils.py `create_ref_model`",
        when=is_of_pairs,
    ),
    row(
        ("enable_liger_kernel", "stage"),
        ("loss.path",),
        _write_path,
        _path,
        f"{_MODEL}; model/model_utils/liger_kernel.py `apply_liger_kernel`: require_logits",
        absent={"loss.path": "full"},
    ),
)


# ── model and data ───────────────────────────────────────────────────────────────────────────────

_ATTENTION: Final = {"fa2": "flash_attention_2", "sdpa": "sdpa", "disabled": "eager"}
_KERNELS: Final = {kernel: word for word, kernel in _ATTENTION.items()}


def _data(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The names of data sets, separated by commas, unless they are mixed by shares."""
    names = user_data.paths(found, "dataset") or split_names(found.get("dataset"))
    if not names or is_explained(found) or found.get("mix_strategy", "concat") != "concat":
        return {}
    if found.get("max_samples") and found.get("eval_dataset"):
        return {}  # it cuts what is evaluated on, too
    return training_parts([user_data.limited(each, found.get("max_samples")) for each in names])


def _evaluation(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The name of the evaluation set; a share that is split off has no slot value."""
    names = user_data.paths(found, "eval_dataset") or split_names(found.get("eval_dataset"))
    if names and is_explained(found):
        return {}
    if names:
        return {"data.evaluation": names[0]} if len(names) == 1 else {}
    return {} if found.get("val_size") else {"data.evaluation": None}


def forms(found: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Keys for data sets of dataset_info.json, with why other programs cannot read them."""
    for key in ("dataset", "eval_dataset") if not is_explained(found) else ():
        names = split_names(found.get(key))
        if names and not user_data.is_read(found):
            why = f"llamafactory finds {joined(names, 'and')} in its dataset_info.json"
            yield (
                key,
                f"{why}: other trainers take a file or a data set by the name that it has for all",
            )
        elif names:
            yield from ((key, why) for why in user_data.left(found, key))
    is_frozen = found.get("freeze_vision_tower") is not False
    if split_names(found.get("lora_target")) == ("all",) and is_frozen and _SEEING & {*found}:
        why = "llamafactory adapts the language model alone, trl's all-linear what reads images too"
        yield "lora_target", why


_SEEING: Final = frozenset(
    {
        *("image_max_pixels", "image_min_pixels", "video_max_pixels", "video_maxlen", "media_dir"),
        *("freeze_vision_tower", "freeze_multi_modal_projector"),
    }
)
"""Keys of vision-language models."""


def _packing(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get("neat_packing"):
        return {"data.packing": True}
    said = found.get("packing")
    return {"data.packing": found.get("stage") == "pt" if said is None else said}


# ── templates ────────────────────────────────────────────────────────────────────────────────────


def template_of(plan: Plan, release: str) -> str | None:
    """The template of a model in a release; None: it is built from the tokenizer's own.

    Where all tokens are learned, one that takes them goes before one that takes answers alone.
    """
    known = template_names(release)
    fitting = [each for each in templates_of(plan.model.path) if each in known]
    if plan.data.loss_on == "all":
        fitting.sort(key=lambda each: each in ENDS_ONCE)
    return next(iter(fitting), None)


def _template(release: str, until: str | None = None) -> Entry:
    own = derived(
        "template",
        lambda plan: template_of(plan, release),
        f"llamafactory {release} data/template.py `get_template_and_fix_tokenizer`: absent, it is "
        "made of the tokenizer's own",
        since=release,
        until=until,
    )
    return replace(own, yields=True)


_TEMPLATE: Final = (_template(WRITTEN, "0.9.4"), _template("0.9.4", "0.9.5"), _template("0.9.5"))
MODEL: Final = (
    same("model_name_or_path", "model.path", _MODEL),
    same(
        "trust_remote_code",
        "model.trust_remote_code",
        f"{_MODEL}, in 0.9.3 and not in 0.9.1",
        since="0.9.2",
        default=False,
    ),
    fixed(
        "model.trust_remote_code",
        True,
        "llamafactory 0.9.1 model/loader.py `_get_init_kwargs`",
        until="0.9.2",
    ),
    row(
        ("flash_attn",),
        ("attention.implementation",),
        lambda plan: {"flash_attn": _KERNELS[plan.attention.implementation]},
        named_word(_ATTENTION, "flash_attn", "attention.implementation"),
        "llamafactory 0.9.1 to 0.9.5 model/model_utils/attention.py; auto is the model's own",
    ),
    *_TEMPLATE,
)
_LEAST_PIXELS: Final = 32 * 32
"""The default of `image_min_pixels`: llamafactory 0.9.3 to 0.9.5 hparams/model_args.py."""
DATA: Final = (
    replace(
        observed(
            ("dataset", "max_samples", "mix_strategy", "eval_dataset", "dataset_dir", EXPLAINED),
            TRAINING_DATA,
            _data,
            f"{_DATA}; data/data_utils.py `merge_dataset`; data/loader.py: the first `max_samples`",
            when=in_no_plan,
        ),
        beside=("eval_dataset",),
    ),
    replace(
        observed(
            ("eval_dataset", "val_size", "dataset", "dataset_dir", EXPLAINED),
            ("data.evaluation",),
            _evaluation,
            _DATA,
            absent={"data.evaluation": None},
            when=lambda plan: not evaluates(plan),
        ),
        beside=("dataset", "dataset_dir", EXPLAINED),
    ),
    observed(
        ("dataset", EXPLAINED),
        ("data.format",),
        user_data.records,
        "llamafactory 0.9.1 to 0.9.5 data/parser.py `DatasetAttr`; data/converter.py",
        when=in_no_plan,
    ),
    *NAMES,
    *length("cutoff_len", 2048, _DATA, f"{_DATA}; data/mm_plugin.py `process_messages`"),
    row(
        ("neat_packing", "packing", "stage"),
        ("data.packing",),
        lambda plan: {"neat_packing": plan.data.packing, "stage": _stage(plan)},
        _packing,
        f"{_DATA}; {_PARSER}: absent it is on in pre-training only, and without neat_packing "
        "samples see each other",
        absent={"data.packing": False},
    ),
    derived(
        "image_max_pixels",
        lambda plan: max(plan.data.image_width * plan.data.image_height, _LEAST_PIXELS),
        "llamafactory 0.9.1 to 0.9.5 data/mm_plugin.py `_preprocess_image`: larger ones are made "
        "so small; absent, 768 x 768",
        since=WRITTEN,
        when=has_images,
    ),
    constant("do_train", True, f"{_PARSER}: without it nothing is trained"),
)


def _stage(plan: Plan) -> str:
    return "sft" if is_supervised(plan) else "dpo"
