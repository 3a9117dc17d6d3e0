"""Single flags of diffusers' example scripts and of alpaca-lora, and the models that they train."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.diagnostics.wording import joined, nearest
from tunec.compiler.lints.conditions import in_words, is_unknown, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.diffusion import choices, commands, is_flag, is_near, scripts, types
from tunec.compiler.lints.facts.training_loop import is_number, is_whole
from tunec.compiler.lints.rule import Finding, rule

_SINGLE: Final = (
    *("instance_prompt", "class_prompt", "output_dir", "instance_data_dir", "class_data_dir"),
    *("initializer_token", "placeholder_token", "pretrained_model_name_or_path", "hub_model_id"),
)
"""Flags that take one word in every script, besides the numeric flags."""
_PROMPTED: Final = ("train_dreambooth", "textual_inversion", "train_text_to_image_lora")
"""Scripts whose validation takes one prompt; those of control networks take several."""
_TOLD: Final = ("resolution", "train_batch_size", "learning_rate", "max_train_steps")
_WHOLE: Final = 5
"""Flags of a command that is not an excerpt: forum threads show fewer, and no output_dir."""
_NUMBERS: Final = {"int": "a whole number", "float": "a number"}


@rule("error", "parse", consumers=("diffusers",), reads=("diffusers:*",))
def example_flag_refused(run: LintContext) -> Iterator[Finding]:
    """A flag that a diffusers example script rejects, takes in another form, or requires."""
    for document, script in commands(run):
        if script not in scripts():
            continue
        flags, programs = scripts()[script]["flags"], run.started.get(document.name, ())
        for path, place in document.found.items():
            if is_flag(path, flags):
                yield from _value(script, path, place)
            elif not run.own.parses(path, programs):
                yield _unknown(script, place, flags)
        yield from _lacking(document, script)


def _value(script: str, flag: str, place: Place) -> Iterator[Finding]:
    words, kind, value = choices().get(flag), types().get(flag, "str"), place.value
    if words and isinstance(value, str) and value not in words:
        yield Finding(
            f"{flag} {value} is refused",
            (place.label("invalid choice"),),
            (f"the script takes {joined(words)}",),
            "write one of these",
        )
    if kind == "switch" and place.node.written is not None:
        yield Finding(
            f"{flag} takes no value",
            (place.label("unrecognized arguments"),),
            ("it is a switch: off where it is left out",),
            f"write --{flag} alone" if str(value).lower() == "true" else "remove it",
        )
    is_single = flag in _SINGLE or kind in _NUMBERS
    if flag == "validation_prompt" and script.startswith(_PROMPTED):
        is_single = True
    if isinstance(value, list) and is_single:
        yield Finding(
            f"{flag} takes one word, and is given {len(value)}",
            (place.label("unrecognized arguments"),),
            ("what stands between blanks is a word of its own, unless quotes are around it",),
            f"write --{flag} '{' '.join(map(str, value))}'",
        )
    is_half = kind == "int" and isinstance(value, float)
    if kind in _NUMBERS and isinstance(value, str | float) and (not is_number(value) or is_half):
        yield Finding(
            f"{flag} {value} is refused",
            (place.label("invalid value"),),
            (f"the script takes {_NUMBERS[kind]}",),
            "write the number alone",
        )


def _unknown(script: str, place: Place, flags: Sequence[str]) -> Finding:
    near = nearest(place.path, frozenset(flags))[:1]
    is_alike = is_near(place.path, flags)
    others = sorted(name for name, each in scripts().items() if place.path in each["flags"])
    return Finding(
        f"{script}.py has no flag `{place.path}`",
        (place.key_label("unrecognized arguments"),),
        (
            *((f"{joined(others[:2])} takes it",) if others else ()),
            *(() if is_alike else ("a script of one's own that is called so may take it",)),
        ),
        f"did you mean `{near[0]}`?" if near else "remove it",
        Fix((place.renamed(near[0]),), "unsafe") if is_alike else None,
        severity=None if is_alike else "warning",
    )


def is_whole_command(document: Document) -> bool:
    """Whether a command has so many flags that it is probably not an excerpt."""
    is_told = any(document.get(each) is not None for each in _TOLD)
    return len(document.found) >= _WHOLE and is_told and document.get("output_dir") is not None


def _lacking(document: Document, script: str) -> Iterator[Finding]:
    for flag in scripts()[script]["required"]:
        if document.get(flag) is None and flag not in document.unknown:
            first = next(iter(document.found.values()), None)
            if first is not None:
                yield Finding(
                    f"{script}.py is not given --{flag}",
                    (first.key_label("among these flags"),),
                    ("the following arguments are required",),
                    f"write --{flag}",
                    # a part of a command is shown more often than all of it
                    severity="warning" if is_whole_command(document) else "note",
                )


_PROMPTS: Final = (
    "validation_prompt | validation_prompts | validation_image | final_validation_prompt | "
    "run_validation | val_image_url"
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
    (*("prior_loss_weight", "with_prior_preservation"), "it weighs the loss of the class's images"),
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
"""A flag, the flags that it needs, and why."""
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
"""A flag, the setting beside which it has no effect, and why."""


@rule("warning", "silent", consumers=("diffusers",), reads=("diffusers:*",))
def example_flag_unread(run: LintContext) -> Iterator[Finding]:
    """A flag of a diffusers example script that has no effect because of another flag."""
    for document, _ in commands(run):
        for flag, needed, why in _PROVIDED:
            others = [each.strip() for each in needed.split("|")]
            at = where(document, flag)
            if at is None or any(is_unknown(document, each) for each in others):
                continue
            if not any(where(document, each) or _is_given_empty(document, each) for each in others):
                yield Finding(
                    f"{flag} does nothing without {in_words(others[0])}",
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


def _is_given_empty(document: Document, flag: str) -> bool:
    """Whether a flag has an empty value: the scripts compare most flags with None."""
    at = document.get(flag)
    return at is not None and at.value in ("", None)


def _accumulated(run: LintContext, document: Document) -> Iterator[Finding]:
    """Report accumulation steps that differ from DeepSpeed's, which override the Accelerator's."""
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


_MODELS: Final = (
    ("Stable Diffusion XL", re.compile(r"(?i)stable-diffusion-xl|(?:^|[/_-])sdxl")),
    ("Stable Diffusion 3", re.compile(r"(?i)stable-diffusion-3|(?:^|[/_-])sd3")),
    ("FLUX.2", re.compile(r"(?i)flux[.-]?2")),
    ("FLUX.1", re.compile(r"(?i)flux[.-]?1")),
    (
        "Stable Diffusion 1 or 2",
        re.compile(r"(?i)stable-diffusion-(v1|v2|2|1)|(?:^|[/_-])sd-?(15|1[.-]5|21)\b"),
    ),
)
"""Patterns for the names of the repositories that the makers publish."""
_SCRIPTS: Final = (
    ("Stable Diffusion XL", re.compile(r"_sdxl(_|$)")),
    ("Stable Diffusion 3", re.compile(r"_sd3$")),
    ("FLUX.2", re.compile(r"_flux2(_|$)")),
    ("FLUX.1", re.compile(r"_flux(_|$)")),
    (
        "Stable Diffusion 1 or 2",
        re.compile(
            r"\A(train_dreambooth|train_dreambooth_lora|train_dreambooth_lora_sd15_advanced|"
            r"train_text_to_image|train_text_to_image_lora|train_controlnet|train_instruct_pix2pix|"
            r"train_custom_diffusion|textual_inversion)\Z"
        ),
    ),
)
_WHY: Final = (
    "what the denoiser gets beside the text differs: the script fails where it loads the parts, "
    "or at the first step"
)
_PATHS: Final = ("pretrained_model_name_or_path", "pretrained_teacher_model")


@rule("error", "step", consumers=("diffusers",), reads=("diffusers:*",))
def example_of_another_model(run: LintContext) -> Iterator[Finding]:
    """A diffusers example script is given a model of another architecture than it trains."""
    for document, script in commands(run):
        trains = _first(_SCRIPTS, script) if script in scripts() else None
        for key in _PATHS:
            at = document.get(key)
            given = _first(_MODELS, at.value) if at and isinstance(at.value, str) else None
            if at is None or given is None or trains is None or given == trains:
                continue
            yield Finding(
                f"{script}.py trains {trains}, and {at.value} is {given}",
                (at.label("another architecture"),),
                (_WHY,),
                f"use the script of {given}: {', '.join(_scripts_of(given)[:2])}",
            )


def _first(table: tuple[tuple[str, re.Pattern[str]], ...], text: str) -> str | None:
    return next((name for name, pattern in table if pattern.search(text)), None)


def _scripts_of(model: str) -> list[str]:
    return [f"{name}.py" for name in sorted(scripts()) if _first(_SCRIPTS, name) == model]


_FLAGS: Final[Mapping[str, int | float | None]] = {
    **dict.fromkeys(("base_model", "data_path", "output_dir", "lora_target_modules")),
    "batch_size": 128,
    "micro_batch_size": 4,
    "num_epochs": 3,
    "learning_rate": 3e-4,
    "cutoff_len": 256,
    "val_set_size": 2000,
    "lora_r": 8,
    "lora_alpha": 16,
    "lora_dropout": 0.05,
    **dict.fromkeys(("train_on_inputs", "add_eos_token", "group_by_length")),
    **dict.fromkeys(("wandb_project", "wandb_run_name", "wandb_watch", "wandb_log_model")),
    **dict.fromkeys(("resume_from_checkpoint", "prompt_template_name")),
}
"""tloen/alpaca-lora 8bb8579 finetune.py `train`: its parameters, with their defaults if these are
numbers."""
_MADE_OF_IT: Final = frozenset(
    {
        *("use_gradient_checkpointing", "adapter_name", "load_8bit", "eval_step", "save_step"),
        *("bottleneck_size", "non_linearity", "use_parallel_adapter", "use_adapterp", "scaling"),
        *("num_virtual_tokens", "target_modules", "local_rank", "ds_config", "save_steps"),
        *("weight_decay", "warmup_ratio", "warmup_steps", "device", "seed", "fp16", "bf16"),
        *("template_dir", "cuda_id", "lora_modules", "data_length", "int8", "load_in_8bit"),
    }
)
"""Flags of scripts derived from it: AGI-Edgerunners/LLM-Adapters finetune.py, and others."""


@rule("error", "init", consumers=("alpaca-lora",), reads=("alpaca-lora:*",))
def alpaca_lora_flags_refused(run: LintContext) -> Iterator[Finding]:
    """Flags that alpaca-lora's finetune.py does not take, or cannot train with."""
    for document in run.of("alpaca-lora"):
        is_another = bool(_MADE_OF_IT & document.found.keys())
        for path, at in document.found.items():
            if path not in _FLAGS and path not in _MADE_OF_IT and not is_another:
                yield _of_no_parameter(path, at)
        yield from _batch(run, document)


def _of_no_parameter(path: str, at: Place) -> Finding:
    near = nearest(path, frozenset(_FLAGS))[:1]
    return Finding(
        f"finetune.py has no flag `{path}`",
        (at.key_label("not consumed"),),
        ("python-fire gives each flag to a parameter of `train`: Could not consume arg",),
        f"did you mean `{near[0]}`?" if near else "remove it",
        Fix((at.renamed(near[0]),), "unsafe") if near else None,
        consequence="parse",
        severity=None if near else "warning",
    )


def _batch(run: LintContext, document: Document) -> Iterator[Finding]:
    """Check batch_size: accumulation is batch / micro batch / processes, rounded down."""
    batch, micro = document.get("batch_size"), document.get("micro_batch_size")
    world = run.value("parallel.world")
    at = batch or micro
    if at is None or {"batch_size", "micro_batch_size"} & document.unknown:
        return
    total, each = document.value("batch_size", 128), document.value("micro_batch_size", 4)
    if not all(is_number(n) and isinstance(n, int) and n > 0 for n in (total, each)):
        return
    processes = world if isinstance(world, int) and world > 1 else 1
    steps = total // each // processes
    places = (
        at.label("of all processes"),
        *([micro.label("", primary=False)] if batch and micro else []),
    )
    numbers = (
        Term("batch_size", total, ""),
        Term("micro_batch_size", each, ""),
        Term("processes", processes, ""),
    )
    if steps == 0:
        yield Finding(
            f"batch_size {total} is less than one step of {processes} x {each} samples",
            places,
            ("gradient_accumulation_steps becomes 0, and the trainer divides by it",),
            f"write --batch_size {each * processes} or more",
            sum=numbers,
        )
    elif steps * each * processes != total:
        yield Finding(
            f"an update is of {steps * each * processes} samples, and not of {total}",
            places,
            (f"{total} // {each} // {processes} is {steps}",),
            f"write --batch_size {steps * each * processes}",
            sum=numbers,
            severity="warning",
            consequence="silent",
        )
