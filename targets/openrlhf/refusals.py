"""Plans that OpenRLHF does not run, or runs differently."""

from typing import Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.schemas.data_paths import chosen
from tunec.targets.openrlhf.packages import SOURCE
from tunec.targets.openrlhf.training import share_of, totals
from tunec.targets.rows import has_adapter
from tunec.targets.scripts.refusals import Refusal, reading_text

_FLAGS: Final = f"{SOURCE} cli/train_sft.py, cli/train_dpo.py"
_BLEND: Final = f"{SOURCE} datasets/utils.py `blending_datasets`"


def _sets(plan: Plan) -> tuple[str, ...]:
    evaluation = plan.data.evaluation
    return (*training_data(plan), *((evaluation,) if evaluation else ()))


def _has_no_share(plan: Plan) -> bool:
    """Whether the warmup steps are unknown, or no share results in them."""
    schedule = plan.schedule
    if schedule.warmup_share is not None or not schedule.warmup_steps:
        return False
    return share_of(schedule.warmup_steps, totals(plan)) is None


REFUSALS: Final = (
    Refusal(
        ("adapter.targets",),
        "it gives PEFT a list of names, and no regular expression",
        lambda plan: (
            has_adapter(plan)
            and isinstance(plan.adapter.targets, str)
            and plan.adapter.targets != "all-linear"
        ),
        f"{SOURCE} cli/train_sft.py: `--ds.lora.target_modules` with nargs",
        "list names that only linear layers have, or compile to trl, axolotl or ms-swift",
    ),
    Refusal(
        ("launch.launcher",),
        "each process reads its rank from variables that torchrun or DeepSpeed's launcher sets",
        lambda plan: plan.launch.launcher not in ("torchrun", "deepspeed"),
        f"{SOURCE} utils/deepspeed/deepspeed.py `setup_distributed`: deepspeed.init_distributed "
        "asks MPI for what is missing",
        "set `launcher: torchrun`, or leave it out",
    ),
    Refusal(
        ("schedule.epochs",),
        "its length is a whole number of epochs, and no flag counts steps",
        lambda plan: plan.schedule.epochs is None or plan.schedule.epochs % 1 != 0,
        f"{_FLAGS}: --train.max_epochs",
        "set a whole number as `train.epochs`, and leave `train.steps` out",
    ),
    Refusal(
        ("schedule.warmup_steps",),
        "a warm-up is a share of the steps, and which share these are follows from their number",
        _has_no_share,
        f"{_FLAGS}: --lr_warmup_ratio",
        "set `data.samples`, or a share as `train.warmup`",
    ),
    Refusal(
        ("schedule.save_steps",),
        "it saves after so many steps, and after none of its epochs",
        lambda plan: plan.schedule.save_steps is None,
        f"{SOURCE} trainer/sft_trainer.py, trainer/dpo_trainer.py `fit`",
        "set `train.save_steps`, or `data.samples`, by which an epoch has steps",
    ),
    Refusal(
        ("schedule.keep_checkpoints",),
        "it deletes all but the newest 3 where no number is given",
        lambda plan: plan.schedule.keep_checkpoints is None,
        f"{SOURCE} utils/deepspeed/deepspeed.py `save_ckpt`",
        "set a number of checkpoints to keep",
    ),
    Refusal(
        ("schedule.kind",),
        "transformers makes this schedule only of arguments for which it has no flag",
        lambda plan: plan.schedule.kind == "warmup_stable_decay",
        f"{SOURCE} utils/deepspeed/deepspeed.py `_ds_init_train_model`; transformers 5.7.0 to "
        "5.15.0 optimization.py `get_wsd_schedule`: num_decay_steps",
        "choose another schedule",
    ),
    Refusal(
        ("data.train",),
        "it takes a comma for the end of a name, and @ for the start of a folder's",
        lambda plan: any("," in each or "@" in each for each in _sets(plan)),
        _BLEND,
        "rename the data",
    ),
    Refusal(
        ("data.train", "data.evaluation"),
        "it loads no configuration of a data set, and one split of all that is trained on",
        lambda plan: (
            any(chosen(each).config for each in _sets(plan))
            or len({chosen(each).split for each in training_data(plan)}) > 1
        ),
        _BLEND,
        "write that part to a file of its own, or compile to trl",
    ),
    Refusal(
        ("attention.implementation", "data.packing"),
        "it packs samples for FlashAttention alone, and takes that whatever the flag says",
        lambda plan: plan.data.packing and plan.attention.implementation != "flash_attention_2",
        f"{_FLAGS}: packing_samples",
        "set `attention: flash_attention_2`",
    ),
    Refusal(
        ("quantization.format", "precision.compute"),
        "it computes over a base in 4 bits in bf16 alone",
        lambda plan: plan.quantization.format == "nf4" and plan.precision.compute != "bf16",
        f"{SOURCE} models/actor.py `Actor.__init__`, AssertionError",
        "compute in bf16, or train adapters over a base in 16 bits",
    ),
    reading_text(f"{_FLAGS}: no flag names images; models/actor.py `Actor.forward`"),
    Refusal(
        ("data.packing", "model.kind"),
        "a model that sees makes positions of its own, and for packed samples it is given others: "
        "which of them keep such samples apart is not known",
        lambda plan: plan.data.packing and plan.model.kind == "vision-language",
        f"{SOURCE} models/actor.py `Actor.forward`; cli/train_ppo_ray.py refuses both together",
        "leave `data.packing` out",
    ),
    Refusal(
        ("quantization.format", "adapter.kind"),
        "without adapters nothing of a base in 4 bits is trained but what is not quantised",
        lambda plan: plan.quantization.format == "nf4" and plan.adapter.kind == "none",
        f"{SOURCE} models/actor.py `Actor.__init__`",
        "set `method: qlora`",
    ),
)
