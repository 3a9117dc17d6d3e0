"""OpenRLHF's flags without a slot: what other trainers do instead."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Carry, Moved, gone, one_of
from tunec.compiler.target import Json
from tunec.targets.openrlhf.packages import SOURCE
from tunec.targets.scripts.command import FLAGS

_PARSERS: Final = f"{SOURCE} cli/train_sft.py, cli/train_dpo.py"


def _other(flag: str, instead: str) -> Moved:
    return gone(f"{FLAGS}.{flag}", _PARSERS, instead)


def _unless(flag: str, instead: str, *values: Any) -> Moved:
    """A flag that changes nothing at some of its values."""
    return gone(f"{FLAGS}.{flag}", _PARSERS, instead, changes_nothing=one_of(*values))


_SAVES: Final = f"{FLAGS}.ckpt.save_steps"


def _never(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """No checkpoint before the end, unless there is a number of steps."""
    every = found.get(_SAVES, -1)
    return {"save_strategy": "no"} if isinstance(every, int) and every < 1 else {}


CARRIES: Final = tuple(
    Carry(
        (key,),
        _never,
        f"{SOURCE} trainer/sft_trainer.py, dpo_trainer.py `fit`: save_steps -1 is infinite",
        beside=() if key == _SAVES else (_SAVES,),
        slots=("schedule.save_steps",),
        is_default=key != _SAVES,
    )
    for key in (_SAVES, f"{FLAGS}.model.model_name_or_path")
)
_PACKED: Final = f"{FLAGS}.ds.packing_samples"
UNPADDED: Final = Carry(
    (_PACKED,),
    lambda found: {"padding_free": True} if found[_PACKED] is True else {},
    f"{SOURCE} datasets/reward_dataset.py `packing_collate_fn`: the pairs of a micro batch in one "
    "row, with the loss of each; trl 0.17.0 to 1.16.0 trainer/dpo_config.py",
    slots=("data.packing",),
)
LEAVES: Final = (
    _other("ckpt.path", "checkpoints lie below the output"),
    _other("ckpt.max_mem", "the number of checkpoints bounds them"),
    _other("ckpt.save_hf", "checkpoints hold weights in transformers' form"),
    _other("ckpt.disable_ds", "checkpoints hold what a run continues with"),
    _other("logger.wandb.project", "WANDB_PROJECT names the project"),
    _other("logger.wandb.org", "WANDB_ENTITY names who owns it"),
    _other("logger.wandb.group", "WANDB_RUN_GROUP names the group"),
    _other("logger.wandb.run_name", "the run is named by its program"),
    _other("local_rank", "LOCAL_RANK tells it"),
    _unless("ckpt.load_enable", "training begins anew", False),
    _unless("data.dataset_split", "the part called train is read", "train"),
    _unless("data.disable_fast_tokenizer", "the tokenizer is the fast one", False),
    _unless("model.aux_loss_coef", "no loss balances experts", 0, 0.0),
    _unless("model.pretrain_mode_enable", "answers are learned, and not all of a text", False),
    _unless("ds.deepcompile", "the engine compiles nothing", False),
    _unless("ds.use_liger_kernel", "the model's own kernels run", False),
    _unless("ds.use_universal_ckpt", "checkpoints are for as many ranks as wrote them", False),
    _unless("use_ms", "names are those of Hugging Face's hub", False),
)
"""What is done without each of these flags."""
