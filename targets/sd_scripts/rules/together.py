"""Flags that sd-scripts refuses together, and those without effect beside others."""

from typing import Any, Final

from tunec.compiler.lints.rows import Row, rows
from tunec.targets.scripts.flag_rows import SCHEDULES
from tunec.targets.scripts.schedule_rows import schedule_rows
from tunec.targets.sd_scripts.rules.scripts import OF_SCRIPTS

_KIND: Final = "sd-scripts"
_VALUE: Final = "ValueError before the model is loaded"
_ASSERTION: Final = "AssertionError"


def _pair(when: str, other: str, why: str, help: str, *beside: str, **more: Any) -> Row:
    return Row(
        f"{_KIND}:{when}",
        "{0.key} cannot be combined with {1.key} {1.value}",
        "refused",
        why,
        help,
        beside=(f"{_KIND}:{other}", *beside),
        **more,
    )


def _needs(when: str, other: str, needed: str, why: str, help: str, **more: Any) -> Row:
    return Row(
        f"{_KIND}:{when}",
        f"{{0.key}} requires {needed}",
        "refused",
        why,
        help,
        beside=(f"no {_KIND}:{other}", f"no {_KIND}:config_file"),
        **more,
    )


_WARMING: Final = "lr_warmup_steps>0"
_ADAFACTOR: Final = f"{_KIND}:optimizer_type~=adafactor"
_CAPTIONS: Final = (
    *("shuffle_caption", "caption_dropout_rate>0", "token_warmup_step>0"),
    "caption_tag_dropout_rate>0",
)
SD_SCRIPTS_FLAGS_REFUSED: Final = rows(
    "sd-scripts-flags-refused",
    "error",
    "init",
    consumers=("sd-scripts",),
    rows=(
        _needs(
            "adaptive_noise_scale", "noise_offset", "noise_offset", _VALUE, "write noise_offset"
        ),
        _needs(
            "scale_v_pred_loss_like_noise_pred",
            "v_parameterization=true",
            "v_parameterization",
            _VALUE,
            "write v_parameterization, for a model of that kind",
        ),
        _pair("v_pred_like_loss", "v_parameterization=true", _VALUE, "remove one of the two"),
        *(
            _needs(f"log_with={word}", "logging_dir", "logging_dir", _VALUE, "write logging_dir")
            for word in ("tensorboard", "all")
        ),
        _pair("use_8bit_adam=true", "use_lion_optimizer=true", _ASSERTION, "remove one of the two"),
        _pair("use_8bit_adam=true", "optimizer_type", _ASSERTION, "remove use_8bit_adam"),
        _pair("use_lion_optimizer=true", "optimizer_type", _ASSERTION, "remove use_lion_optimizer"),
        _needs(
            "fused_backward_pass=true",
            "optimizer_type~=adafactor",
            "optimizer_type Adafactor",
            f"{_ASSERTION}: only Adafactor steps in the backward pass",
            "write optimizer_type Adafactor",
        ),
        _pair(
            "fused_backward_pass=true",
            "gradient_accumulation_steps>1",
            f"{_ASSERTION}: gradients are gone before the next micro batch",
            "write gradient_accumulation_steps 1",
        ),
        _pair(
            _WARMING,
            "lr_scheduler=constant",
            "ValueError: constant does not require `num_warmup_steps`",
            "write lr_scheduler constant_with_warmup",
        ),
        Row(
            f"{_KIND}:{_WARMING}",
            "lr_warmup_steps is refused by lr_scheduler constant, which has no warm-up",
            "refused",
            "ValueError: constant, the default, does not require `num_warmup_steps`",
            "write lr_scheduler constant_with_warmup",
            beside=(
                f"no {_KIND}:lr_scheduler",
                f"no {_KIND}:lr_scheduler_type",
                f"no {_KIND}:config_file",
                f"no {_KIND}:optimizer_type~schedulefree",
            ),
        ),
        Row(
            f"{_KIND}:{_WARMING}",
            "lr_warmup_steps cannot be combined with Adafactor's own step size",
            "refused",
            "relative_step is on unless optimizer_args turn it off: ValueError, its schedule does "
            "not require `num_warmup_steps`",
            'write "relative_step=False" in optimizer_args, or remove lr_warmup_steps',
            beside=(
                _ADAFACTOR,
                f"no {_KIND}:optimizer_args~relative_step",
                f"no {_KIND}:config_file",
            ),
        ),
        _pair(
            _WARMING,
            "lr_scheduler_type",
            "ValueError: a scheduler of another library gets no warm-up",
            "remove lr_warmup_steps",
        ),
        _needs(
            "lr_scheduler=adafactor",
            "optimizer_type~=adafactor",
            "optimizer_type Adafactor",
            f"{_ASSERTION}: adafactor scheduler must be used with Adafactor optimizer",
            "write optimizer_type Adafactor, or another lr_scheduler",
        ),
        Row(
            f"{_KIND}:lr_scheduler!={SCHEDULES}",
            "lr_scheduler {0.value} is no schedule of transformers",
            "refused",
            "ValueError: it is looked up among transformers' SchedulerType",
            "write cosine, or another that it has",
            beside=(f"no {_KIND}:lr_scheduler_type", f"no {_ADAFACTOR}"),
        ),
        _pair("full_fp16=true", "mixed_precision!=fp16", _ASSERTION, "write mixed_precision fp16"),
        _pair("full_bf16=true", "mixed_precision!=bf16", _ASSERTION, "write mixed_precision bf16"),
        *(
            _pair(
                f"{flag}=true",
                "mixed_precision=no",
                f"{_ASSERTION}: products of fp8 weights are of 16 bits",
                "write mixed_precision bf16",
            )
            for flag in ("fp8_base", "fp8_base_unet")
        ),
        *(
            _pair(
                "cache_latents=true",
                f"{flag}=true",
                f"{_ASSERTION}: a cached image is always the same",
                f"remove {flag}, or cache_latents",
            )
            for flag in ("color_aug", "random_crop")
        ),
        *(
            _pair(
                "cache_text_encoder_outputs=true",
                flag,
                f"{_ASSERTION}: a cached caption is always the same",
                "remove {1.key}, or cache_text_encoder_outputs",
                *(("no launch:script~anima_",) if flag.startswith("caption_dropout") else ()),
            )
            for flag in _CAPTIONS
        ),
        _pair(
            "blocks_to_swap>0",
            "cpu_offload_checkpointing=true",
            f"{_ASSERTION}: blocks_to_swap is not supported with cpu_offload_checkpointing",
            "remove one of the two",
        ),
        _pair(
            "weighted_captions=true",
            "cache_text_encoder_outputs=true",
            f"{_ASSERTION}: weights are applied in the text encoder",
            "remove one of the two",
        ),
        _pair(
            "train_text_encoder=true",
            "cache_text_encoder_outputs=true",
            f"{_ASSERTION}: cached outputs would not follow training",
            "remove one of the two",
        ),
        _pair(
            "persistent_data_loader_workers=true",
            "max_data_loader_n_workers=0",
            "ValueError: persistent_workers option needs num_workers > 0",
            "remove persistent_data_loader_workers",
        ),
        *OF_SCRIPTS,
        *schedule_rows(_KIND),
    ),
)


def _unread(when: str, other: str, message: str, why: str, help: str) -> Row:
    return Row(
        f"{_KIND}:{when}", message, "not read", why, help, beside=(f"{_KIND}:{other}",), at_key=True
    )


def _unread_without(when: str, others: tuple[str, ...], what: str, why: str) -> Row:
    return Row(
        f"{_KIND}:{when}",
        f"{{0.key}} does nothing without {what}",
        "not read",
        why,
        f"write {what}, or remove {{0.key}}",
        beside=(*(f"no {_KIND}:{each}" for each in others), f"no {_KIND}:config_file"),
        at_key=True,
    )


_OF_HUBER: Final = ("loss_type=huber", "loss_type=smooth_l1")
SD_SCRIPTS_FLAG_UNREAD: Final = rows(
    "sd-scripts-flag-unread",
    "warning",
    "silent",
    consumers=("sd-scripts",),
    rows=(
        *(
            _unread(
                flag,
                "dataset_config",
                "{0.key} is not read beside dataset_config",
                "the data's own file is read instead",
                "remove one of the two",
            )
            for flag in ("train_data_dir", "reg_data_dir", "in_json")
        ),
        _unread(
            "max_train_steps!=1600",
            "max_train_epochs",
            "max_train_steps is not read beside max_train_epochs",
            "the steps of the epochs replace it",
            "remove one of the two",
        ),
        _unread(
            "sample_every_n_steps>0",
            "sample_every_n_epochs>0",
            "sample_every_n_steps is not read beside sample_every_n_epochs",
            "images are only generated after epochs",
            "remove one of the two",
        ),
        _unread_without(
            "noise_offset_random_strength=true",
            ("noise_offset",),
            "noise_offset",
            "no noise is offset",
        ),
        _unread_without(
            "multires_noise_discount!=0.3",
            ("multires_noise_iterations",),
            "multires_noise_iterations",
            "it is the share of each further scale of noise",
        ),
        _unread_without(
            "ip_noise_gamma_random_strength=true",
            ("ip_noise_gamma",),
            "ip_noise_gamma",
            "nothing is perturbed",
        ),
        *(
            _unread_without(flag, _OF_HUBER, "loss_type huber", "the loss is of another kind")
            for flag in ("huber_c!=0.1", "huber_schedule!=snr", "huber_scale!=1|1.0")
        ),
        _unread_without(
            "lr_scheduler_num_cycles>1",
            (
                *("lr_scheduler=cosine_with_restarts", "lr_scheduler=cosine_with_min_lr"),
                "lr_scheduler=warmup_stable_decay",
            ),
            "lr_scheduler cosine_with_restarts",
            "other schedules get no cycles",
        ),
        _unread_without(
            "lr_scheduler_power>1",
            ("lr_scheduler=polynomial",),
            "lr_scheduler polynomial",
            "other schedules get no power",
        ),
        _unread_without(
            "network_args", ("network_module",), "network_module", "the whole model is trained"
        ),
        _unread_without(
            "sample_prompts",
            ("sample_every_n_steps", "sample_every_n_epochs", "sample_at_first"),
            "sample_every_n_epochs",
            "no interval for sample images is given",
        ),
        Row(
            f"{_KIND}:optimizer_type~schedulefree",
            "lr_scheduler is not read by {0.value}",
            "has no schedule",
            "a scheduler without effect replaces it",
            "remove lr_scheduler",
            beside=(f"{_KIND}:lr_scheduler!=constant",),
        ),
        Row(
            f"{_KIND}:lr_scheduler!=adafactor",
            "lr_scheduler {0.value} is not read: Adafactor sets its own step size",
            "not read",
            "relative_step is on unless optimizer_args turn it off; learning_rate is its start",
            'write "relative_step=False" in optimizer_args',
            beside=(
                _ADAFACTOR,
                f"no {_KIND}:optimizer_args~relative_step",
                f"no {_KIND}:config_file",
            ),
        ),
        *(
            Row(
                f"{_KIND}:learning_rate<0.1",
                "a learning rate of {0.value} for {1.value}, which finds the rate itself",
                "a factor of what it finds",
                "the program warns: recommend option: lr=1.0",
                "write learning_rate 1.0",
                beside=(f"{_KIND}:optimizer_type~={word}", f"no {_KIND}:unet_lr"),
            )
            for word in (
                "prodigy",
                "dadaptation",
                "dadaptadam",
                "dadaptadan",
                "dadaptlion",
                "dadaptsgd",
            )
        ),
    ),
)
"""Rows of the same shape check a config, and flags without one: flags beside a config do not show
what it sets."""
