"""TRL's arguments without a slot, as Axolotl's keys: the reverse of `migration`."""

from collections.abc import Mapping
from typing import Final

from tunec.compiler.consumers.moved_keys import Carry
from tunec.compiler.target import Json
from tunec.targets.axolotl.migration import (
    ANSWERS,
    BOTH_HAVE,
    BUILDER,
    CENTRE,
    CONFIG,
    FILES,
    GRPO,
    KERNELS,
    LIGER,
    MIXTURE,
    OPTIMIZERS,
    OWN_ATTENTION,
    SCALES,
    SCHEDULES,
    TRL_SECTION,
    USUAL_ATTENTION,
    renamed,
)
from tunec.targets.huggingface.datasets import read_mixture
from tunec.targets.read_only import means_every_layer
from tunec.targets.rows import TRAINING_DATA


def _part(said: Mapping[str, Json]) -> dict[str, Json] | None:
    """A part of TRL's mixture, with samples of `messages`; None if Axolotl cannot express it."""
    if said.keys() - {"path", "name", "split", "data_files"}:
        return None
    held = {**said, "split": said.get("split") or "train", "type": "chat_template"}
    if said["path"] in FILES and "data_files" in held:
        file = held.pop("data_files")
        return {**held, "path": file, "ds_type": said["path"]}
    return held


_OF_PAIRS: Final = ("beta", CENTRE)
"""Keys of files for pairs of answers."""


def _parts(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The data sets if one is partial or a share is split off; rows express whole data sets.

    Pairs of answers have another type, which rows write.
    """
    parts, share = found.get("datasets"), found.get("test_split_size")
    if not isinstance(parts, list) or (read_mixture(found) and not share):
        return {}
    own = [_part(each) for each in parts]
    if any(found.get(key) is not None for key in _OF_PAIRS) or None in own:
        return {}
    return {"datasets": own, "val_set_size": share or 0.0}


def _share(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The share of all that is split off, where rows express the data sets."""
    share = found["test_split_size"]
    return {"val_set_size": share} if share and "datasets" not in found else {}


def _optimizer(found: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"optimizer": found["optim"]} if found["optim"] in OPTIMIZERS else {}


def _schedule(found: Mapping[str, Json]) -> Mapping[str, Json]:
    word, arguments = found.get("lr_scheduler_type"), found.get("lr_scheduler_kwargs")
    if word == "cosine_with_min_lr" and isinstance(arguments, dict):
        is_share = {*arguments} == {"min_lr_rate"}
        least = {"cosine_min_lr_ratio": arguments["min_lr_rate"]} if is_share else {}
        return {"lr_scheduler": "cosine", **least} if least else {}
    return {"lr_scheduler": word} if word in SCHEDULES else {}


_KERNELS: Final = {
    **{f"liger_kernel_config.{other}": key for key, other in KERNELS.items()},
    "liger_kernel_config.cross_entropy": "liger_cross_entropy",
    "liger_kernel_config.fused_linear_cross_entropy": "liger_fused_linear_cross_entropy",
}


def _liger(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The Liger kernels that are set, by Axolotl's plugin."""
    own = {_KERNELS[key]: bool(value) for key, value in found.items() if key in _KERNELS}
    if found.get("use_liger_kernel") is not True or not own:
        return {}
    return {"plugins": ["axolotl.integrations.liger.LigerPlugin"], **own}


def _attention(found: Mapping[str, Json]) -> Mapping[str, Json]:
    word = found["attn_implementation"]
    is_own = not isinstance(word, str) or word in (*OWN_ATTENTION, *USUAL_ATTENTION)
    return {} if is_own else {"attn_implementation": word}


def _order(found: Mapping[str, Json]) -> Mapping[str, Json]:
    word = found["train_sampling_strategy"]
    return {"group_by_length": True} if word == "group_by_length" else {}


def _scales(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The scaling of rewards, as a boolean if possible, because every release accepts one."""
    said = found["scale_rewards"]
    switch = next((flag for flag, word in SCALES.items() if word == said), said)
    return {"trl.scale_rewards": switch}


def _targets(found: Mapping[str, Json]) -> Mapping[str, Json]:
    is_all = means_every_layer(found["lora_target_modules"])
    return {"lora_target_linear": True} if is_all else {}


def _losses(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """Several preference losses, each with its weight; rows express a single one."""
    losses, weights = found["loss_type"], found.get("loss_weights")
    if not isinstance(losses, list) or len(losses) < 2:
        return {}
    return {"dpo_loss_type": losses, **({"dpo_loss_weights": weights} if weights else {})}


def _at_first(found: Mapping[str, Json]) -> Mapping[str, Json] | None:
    return None if found["eval_on_start"] is True else {}


TAKES: Final = (
    Carry(("eval_on_start",), _at_first, BUILDER, since="0.13"),
    Carry(
        ("lora_target_modules",),
        _targets,
        "peft 0.13 to 0.21 tuners/tuners_utils.py; axolotl 0.8.1 to 0.19.0 loaders/adapter.py "
        "`find_all_linear_names`",
        slots=("adapter.targets",),
    ),
    Carry(
        ("test_split_size",),
        _share,
        f"{MIXTURE}; {CONFIG}, utils/data/sft.py",
        beside=("datasets",),
        slots=("data.evaluation",),
    ),
    Carry(
        ("datasets", "test_split_size"),
        _parts,
        f"{MIXTURE}; {CONFIG}, utils/data/sft.py",
        beside=_OF_PAIRS,
        slots=(*TRAINING_DATA, "data.evaluation"),
    ),
    Carry(
        ("optim",),
        _optimizer,
        "axolotl 0.8.1 to 0.19.0 utils/schemas/enums.py `CustomSupportedOptimizers`",
        slots=("optimizer.name", "optimizer.kernel"),
    ),
    Carry(
        ("lr_scheduler_type", "lr_scheduler_kwargs"),
        _schedule,
        f"{BUILDER}; transformers 4.40.2 to 5.23.0 optimization.py",
        slots=("schedule.kind", "schedule.arguments"),
    ),
    Carry(
        ("use_liger_kernel", *_KERNELS),
        _liger,
        f"{LIGER}; transformers 4.57.6 to 5.23.0 integrations/liger.py `apply_liger_kernel`",
    ),
    Carry(
        ("attn_implementation",),
        _attention,
        f"{CONFIG}; trl 0.8.6 to 1.16.0 trainer/model_config.py",
        slots=("attention.implementation",),
    ),
    Carry(
        ("loss_type", "loss_weights"),
        _losses,
        "axolotl 0.19.0 core/trainers/dpo/__init__.py `set_training_args_kwargs`; trl 0.20.0 to "
        "1.16.0 trainer/dpo_config.py",
        slots=("objective.loss",),
        since="0.17",
    ),
    *ANSWERS.takes,
    Carry(
        ("train_sampling_strategy",),
        _order,
        f"transformers 5.0.0 to 5.23.0 training_args.py; {BUILDER}",
    ),
    Carry(
        ("dataset_streaming",),
        lambda found: {"streaming": True} if found["dataset_streaming"] is True else {},
        f"trl scripts/utils.py `ScriptArguments`; {CONFIG}",
    ),
    *(renamed(other, key, f"{theirs}; {own}") for key, other, own, theirs in BOTH_HAVE),
    renamed("vllm_tensor_parallel_size", "vllm.tensor_parallel_size", f"{GRPO}; {TRL_SECTION}"),
    Carry(("scale_rewards",), _scales, f"{GRPO}; {TRL_SECTION}"),
)
"""The reverse of `CARRIES`."""
