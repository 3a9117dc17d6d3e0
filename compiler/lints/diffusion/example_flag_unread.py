"""A flag of diffusers' example scripts that another flag keeps from doing anything."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.conditions import is_unknown, told, where
from tunec.compiler.lints.diffusion.examples import commands
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PROMPTS: Final = (
    "validation_prompt | validation_prompts | validation_image | final_validation_prompt "
    "| run_validation | val_image_url"
)
_PROVIDED: Final = (
    (
        *("class_data_dir", "with_prior_preservation"),
        "images of the class are read for prior preservation alone",
    ),
    (
        *("class_prompt", "with_prior_preservation"),
        "the prompt of the class is read for prior preservation alone",
    ),
    (
        *("prior_loss_weight", "with_prior_preservation"),
        "it weighs the loss of the class's images",
    ),
    (
        *("num_class_images", "with_prior_preservation"),
        "images of the class are made for prior preservation alone",
    ),
    (
        *("lr_num_cycles", "lr_scheduler=cosine_with_restarts"),
        "get_scheduler gives cycles to that schedule alone",
    ),
    ("lr_power", "lr_scheduler=polynomial", "get_scheduler gives a power to that schedule alone"),
    ("hub_model_id", "push_to_hub", "nothing is sent"),
    *(
        (flag, "optimizer=prodigy | optimizer=Prodigy", "Prodigy alone is given it")
        for flag in ("prodigy_beta3", "prodigy_use_bias_correction", "prodigy_safeguard_warmup")
    ),
    *(
        (flag, _PROMPTS, "pictures are made where a prompt is given")
        for flag in ("validation_epochs", "num_validation_images", "validation_steps")
    ),
    (
        *("text_encoder_lr", "train_text_encoder | train_text_encoder_ti"),
        "the text encoder is frozen",
    ),
)
"""A flag, what it needs, and why."""
_BESIDE: Final = (
    (
        *("use_8bit_adam", "optimizer~prodigy"),
        "use_8bit_adam is ignored when optimizer is not set to AdamW",
    ),
    (
        *("num_train_epochs", "max_train_steps"),
        "epochs are counted from max_train_steps where that is given",
    ),
    (
        *("lr_warmup_steps", "lr_scheduler=constant"),
        "the schedule `constant` has no warm-up: the rate is whole from the first step",
    ),
    (
        *("text_encoder_lr", "optimizer~prodigy"),
        "with prodigy only learning_rate is used as the initial learning rate",
    ),
)
"""A flag, beside what it does nothing, and why."""


def _check(run: Run) -> Iterator[Finding]:
    for document, _ in commands(run):
        for flag, needed, why in _PROVIDED:
            others = [each.strip() for each in needed.split("|")]
            at = where(document, flag)
            if at is None or any(is_unknown(document, each) for each in others):
                continue
            if not any(where(document, each) for each in others):
                yield Finding(
                    f"{flag} does nothing without {told(others[0])}",
                    (at.label("not read"),),
                    (why,),
                    f"write --{others[0].replace('=', ' ')}, or remove {flag}",
                )
        for flag, other, why in _BESIDE:
            at, beside = where(document, flag), where(document, other)
            if at is not None and beside is not None:
                yield Finding(
                    f"{flag} does nothing beside {beside.path} {beside.value}",
                    (at.label("not read"), beside.label("", primary=False)),
                    (why,),
                    "remove one of the two",
                )
        yield from _accumulated(run, document)


def _accumulated(run: Run, document: Document) -> Iterator[Finding]:
    """DeepSpeed's number wins over the one that the script gives to its Accelerator."""
    at = document.get("gradient_accumulation_steps")
    for held in run.each("accelerate", "deepspeed_config.gradient_accumulation_steps"):
        if at is None or not (is_whole(at.value) and is_whole(held.value)):
            continue
        if at.value != held.value:
            yield Finding(
                f"gradient_accumulation_steps is {held.value}, and not {at.value}",
                (at.label("not used"), held.label("DeepSpeed's value", primary=False)),
                ("Gradient accumulation steps mismatch. Using DeepSpeed's value",),
                "write the same number in both files",
            )


RULE = Rule(
    name="example-flag-unread",
    severity="warning",
    consequence="silent",
    consumers=("diffusers",),
    sources=(
        (
            "huggingface/diffusers 0.27.2 to 0.40.0 and 58eb52c, examples/dreambooth/*.py "
            "`parse_args`: You need not use --class_data_dir without --with_prior_preservation; "
            "`main`: use_8bit_adam is ignored; args.num_train_epochs = math.ceil(max_train_steps / "
            "num_update_steps_per_epoch)"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 accelerator.py `_prepare_deepspeed`: Gradient "
            "accumulation steps mismatch ... Using DeepSpeed's value"
        ),
        "diffusers 0.42.1 optimization.py `get_scheduler`: CONSTANT takes no num_warmup_steps",
    ),
    check=_check,
)
