"""ms-swift's keys without a slot: TRL's keys for them, or what TRL does instead."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.consumers.moved_keys import (
    Carry,
    all_gone_unless,
    carried,
    gone,
    gone_unless,
    only_here,
)
from tunec.compiler.target import Json
from tunec.schemas.data_paths import Chosen, with_first
from tunec.targets.answers import answers_by
from tunec.targets.ms_swift import grpo_migration as grpo
from tunec.targets.ms_swift.datasets import DESCRIBED, described, limited_name
from tunec.targets.read_only import split_names
from tunec.targets.rows import TRAINING_DATA

_DATA: Final = "ms-swift 4.0.4 to 4.6.0 arguments/base_args/data_args.py `DataArguments`"
_SYNTAX: Final = "ms-swift 4.0.4 to 4.6.0 dataset/dataset_syntax.py `DatasetSyntax.parse`"
_TEMPLATE: Final = "ms-swift 4.0.4 to 4.6.0 arguments/base_args/template_args.py"
_MODEL: Final = "ms-swift 4.0.4 to 4.6.0 arguments/base_args/model_args.py"
_RLHF: Final = "ms-swift 4.0.4 to 4.6.0 arguments/rlhf_args.py"
_TUNER: Final = "ms-swift 4.0.4 to 4.6.0 arguments/tuner_args.py `TunerArguments`"
_MIXTURE: Final = "trl 0.22.0 to 1.16.0 scripts/utils.py `DatasetMixtureConfig`"

_NAME: Final = re.compile(
    r"(?:(?P<hub>HF|MS)::)?(?P<path>[^:#]+)(?::(?P<subset>[^:#/]+))?(?:#(?P<most>\d+))?",
    re.IGNORECASE,
)
"""Hub, name or path, one subset, and its number of samples."""


def _part(name: str, parts: Mapping[str, Chosen]) -> dict[str, Json]:
    """A name as arguments of `load_dataset`. Raises ValueError if it contains more than these."""
    own, limit = limited_name(name)
    if own in parts:
        part = parts[own]
        said = {"path": part.path, "name": part.config, "split": with_first(part.split, limit)}
        return {key: each for key, each in said.items() if each}
    found = _NAME.fullmatch(name.strip())
    if found is None:
        raise ValueError(name)
    subset, most = found["subset"], found["most"]
    kept = {"name": subset} if subset else {}
    return {"path": found["path"], **kept, **({"split": f"train[:{most}]"} if most else {})}


def _parts(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The data sets, if one has a named hub, or a share of all is split off."""
    names, share = split_names(found.get("dataset")), found.get("split_dataset_ratio") or None
    parts = described(found)
    if parts is None:
        return {}
    every = [_part(each, parts) for each in names]
    is_plain = not any("::" in name for name in names)
    if not every or found.get("interleave_prob") or (is_plain and not share):
        return {}
    if found.get("val_dataset"):
        return {}
    return {"datasets": every, **({"test_split_size": share} if share else {})}


def _evaluated_parts(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The data sets with the steps between two evaluations, where those are given."""
    parts, every = _parts(found), found.get("eval_steps")
    is_often = isinstance(every, int) and found.get("eval_strategy") in (None, "steps")
    if not is_often or "test_split_size" not in parts:
        return {}
    return {**parts, "eval_strategy": "steps", "eval_steps": every}


def foreign(found: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Names that only ms-swift reads so: their hub, and how samples are drawn."""
    yield from grpo.foreign(found)
    names = split_names(found.get("dataset"))
    cut = [each for each in names if "#" in each]
    if cut and found.get("dataset_shuffle") is not False:
        yield (
            "dataset",
            (
                f"ms-swift draws samples of {', '.join(cut)} at random, and again where there are "
                "fewer: the first are taken"
            ),
        )
    own = described(found) or {}
    hub = [each for each in names if not _is_file(each) and not each.upper().startswith("HF::")]
    hub = [own.get(limited_name(each)[0], Chosen(each)).path for each in hub]
    if hub and found.get("use_hf") is not True:
        yield (
            "dataset",
            (
                f"ms-swift finds {', '.join(hub)} at ModelScope unless USE_HF is set, and maps its "
                "columns: other trainers take messages, prompts with completions, or text of "
                "Hugging Face's"
            ),
        )


def _is_file(name: str) -> bool:
    path = name.partition("#")[0]
    return path.startswith((".", "/", "~")) or path.rpartition(".")[2] in _ENDINGS


_ENDINGS: Final = ("json", "jsonl", "csv", "parquet", "txt")


def _mixed(found: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """The likelihood of the chosen answer, added to the preference loss."""
    weight, loss = found["rpo_alpha"], found.get("loss_type") or "sigmoid"
    if not weight or not isinstance(loss, str):
        return {} if weight else None
    return {"loss_type": [loss, "sft"], "loss_weights": [1.0, weight]}


_OF_PAIRS: Final = frozenset(
    {
        *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard"),
        *("aot", "discopop", "apo_zero", "apo_down", "sft"),
    }
)


def _losses(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """Preference losses without a slot value, alone or weighted."""
    names, weights = split_names(found.get("loss_type")), found.get("loss_weights")
    is_known = bool(names) and _OF_PAIRS.issuperset(names) and not found.get("rpo_alpha")
    if found.get("rlhf_type") != "dpo" or not is_known:
        return {}
    return {"loss_type": [*names], **({"loss_weights": weights} if weights else {})}


def _stream(found: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"dataset_streaming": True} if found["streaming"] is True else {}


def _unpadded(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """Rows without padding, if they are packed: TRL cuts no others to the maximum length."""
    is_packed = found.get("packing") is True
    return {"padding_free": found["padding_free"]} if is_packed else {}


def _kernel(found: Mapping[str, Json]) -> Mapping[str, Json]:
    word = found["attn_impl"]
    return {"attn_implementation": word} if word == "flash_attention_3" else {}


_IN_BOTH: Final = (
    carried(
        "center_rewards_coefficient",
        "center_rewards_coefficient",
        "ms-swift 4.0.4 to 4.6.0 rlhf_trainers/reward_trainer.py `compute_loss`; trl "
        "trainer/reward_config.py",
    ),
    carried("dataset_num_proc", "dataset_num_proc", f"{_DATA}; trl trainer/sft_config.py"),
    carried(
        "router_aux_loss_coef",
        "router_aux_loss_coef",
        f"{_MODEL}; trl trainer/sft_config.py, grpo_config.py",
    ),
    carried("model_revision", "model_revision", f"{_MODEL}; trl trainer/model_config.py"),
)
ANSWERS: Final = answers_by(
    "loss_scale", "default", "all", "ms-swift 4.0.4 to 4.6.0 loss_scale/base.py `LossScale`"
)
CARRIES: Final = (
    Carry(
        ("rpo_alpha",),
        _mixed,
        f"{_RLHF}; rlhf_trainers/dpo_trainer.py `get_batch_loss_metrics`; trl 0.24.0 to 1.16.0 "
        "trainer/dpo_config.py, dpo_trainer.py",
        beside=("loss_type",),
    ),
    Carry(
        ("loss_type", "loss_weights"),
        _losses,
        f"{_RLHF} `_process_loss_type`; trl 0.20.0 to 1.16.0 trainer/dpo_config.py",
        beside=("rlhf_type", "rpo_alpha"),
        slots=("objective.loss",),
    ),
    Carry(
        ("enable_dft_loss",),
        lambda found: {"loss_type": "dft"} if found["enable_dft_loss"] is True else {},
        "ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py; trl 0.24.0 to 1.16.0 trainer/sft_config.py",
        slots=("objective.loss",),
    ),
    Carry(("streaming",), _stream, f"{_DATA}; trl scripts/utils.py `ScriptArguments`"),
    Carry(
        ("attn_impl",),
        _kernel,
        f"{_MODEL}; trl 0.8.6 to 1.16.0 trainer/model_config.py",
        slots=("attention.implementation",),
    ),
    *(
        Carry(
            ("dataset", "split_dataset_ratio"),
            write,
            f"{_SYNTAX}; {_DATA}; {_MIXTURE}",
            beside=("val_dataset", "interleave_prob", "eval_steps", "eval_strategy", DESCRIBED),
            slots=(*TRAINING_DATA, "data.evaluation", *more),
        )
        for write, more in (
            (lambda found: {} if _evaluated_parts(found) else _parts(found), ()),
            (_evaluated_parts, ("schedule.evaluation_steps",)),
        )
    ),
    Carry(
        ("padding_free",),
        _unpadded,
        f"{_TEMPLATE}; trl 0.18.2 to 1.16.0 trainer/sft_trainer.py: a warning",
        beside=("packing",),
    ),
    *_IN_BOTH,
    *grpo.CARRIES,
)


def _share(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The share of each data set that is split off; it takes no number of samples."""
    share = found["test_split_size"]
    is_share = isinstance(share, float) and 0 < share < 1
    return {"split_dataset_ratio": share} if is_share else {}


TAKES: Final = (
    *ANSWERS.takes,
    Carry(
        ("test_split_size",),
        _share,
        f"{_MIXTURE}; {_DATA}",
        slots=("data.evaluation",),
    ),
    Carry(
        ("loss_type",),
        lambda found: {"enable_dft_loss": True} if found["loss_type"] == "dft" else {},
        "trl 0.24.0 to 1.16.0 trainer/sft_config.py; ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py",
        slots=("objective.loss",),
    ),
    Carry(
        ("dataset_streaming",),
        lambda found: {"streaming": True} if found["dataset_streaming"] is True else {},
        f"trl scripts/utils.py `ScriptArguments`; {_DATA}",
    ),
    carried("padding_free", "padding_free", f"{_TEMPLATE}; trl trainer/sft_config.py"),
    *_IN_BOTH,
)
"""The other way of `CARRIES`."""


_ADAPTERS: Final = (
    *("adalora", "adapter", "boft", "bone", "llamapro", "longlora", "reft", "vera", "fourierft"),
    *("ia3", "dummy", "lora_llm"),
)
_ONLY_LORA: Final = "TRL's scripts make LoRA of PEFT's adapters alone: others need one's own script"
_START: Final = "TRL's scripts have no key for how LoRA begins: it needs a script of one's own"
_KIND: Final = "TRL's scripts train models that write text: classifiers and embeddings are others"
_ODDS: Final = "of other methods than sft, dpo and grpo there is no plan; `trl` has some scripts"
_OPTIMIZER: Final = "it is an optimizer that ms-swift makes itself: the Trainer has no such one"
_ONLY_HERE: Final = (
    only_here("tuner_type", _TUNER, _ONLY_LORA, *_ADAPTERS),
    only_here("init_weights", _TUNER, _START),
    only_here("task_type", _MODEL, _KIND),
    only_here("rlhf_type", _RLHF, _ODDS, "gkd", "kto", "cpo", "orpo", "simpo", "rm", "ppo"),
    only_here("optimizer", "ms-swift 4.0.4 to 4.6.0 optimizers", _OPTIMIZER),
    only_here("tuner_backend", _TUNER, "Unsloth's own kernels are those of its trainer", "unsloth"),
)

LEAVES: Final = (
    *_ONLY_HERE,
    *grpo.LEAVES,
    gone("load_from_cache_file", _DATA, "`datasets` reuses what its cache holds"),
    gone("download_mode", _DATA, "`datasets` reuses what its cache holds"),
    gone("model_type", _MODEL, "the model's own config names its class"),
    gone("check_model", _MODEL, "the files of a model are not compared with its hub's"),
    gone("use_hf", _DATA, "models and data are those of Hugging Face's hub"),
    gone("add_version", "ms-swift arguments/base_args/base_args.py", "the output has no number"),
    gone("create_checkpoint_symlink", "ms-swift arguments/sft_args.py", "no link is made"),
    *all_gone_unless(
        ("model_name", "model_author"), _DATA, "a data set keeps its own names for the assistant"
    ),
    gone_unless("system", _TEMPLATE, "the samples hold their own system messages"),
    gone_unless("template", _TEMPLATE, "the chat template of the tokenizer is used"),
    *all_gone_unless(
        ("dataset_shuffle", "val_dataset_shuffle"), _DATA, "data is shuffled while training", True
    ),
    gone_unless(
        "use_chat_template", _TEMPLATE, "messages are formatted by the chat template", True
    ),
    gone_unless("loss_scale", _TEMPLATE, "all tokens of an answer count the same", "default"),
    gone_unless("strict", _DATA, "a sample that fails ends the run", True),
    *all_gone_unless(
        ("freeze_vit", "freeze_aligner"),
        _TUNER,
        "adapters are in all layers that are named, those that read images too",
        False,
    ),
    gone_unless("freeze_llm", _TUNER, "adapters are in the language model, too", False),
    gone_unless("agent_template", _TEMPLATE, "the chat template of the tokenizer formats tools"),
    gone_unless("response_prefix", _TEMPLATE, "the chat template begins answers", ""),
    gone_unless("early_stop_interval", "ms-swift arguments/sft_args.py", "no run is stopped early"),
    gone_unless(
        "lazy_tokenize",
        "ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py",
        "samples are made tokens at the start of each run",
        False,
    ),
    gone_unless(
        "use_logits_to_keep",
        "ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py",
        "logits are computed as TRL's trainer does",
        False,
    ),
    gone("padding_free", _TEMPLATE, "batches are padded: the same, with more memory"),
    gone(
        "vit_gradient_checkpointing",
        "ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py",
        "the part that reads images recomputes where the model does: the same numbers",
    ),
    gone_unless("experts_impl", _MODEL, "the model's own experts are run"),
)
"""What TRL does without each of these keys."""
