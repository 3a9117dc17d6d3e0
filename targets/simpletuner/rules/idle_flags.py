"""Flags of SimpleTuner that have no effect."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.diffusion import FLOW, amount, configs, family, is_on, said, word
from tunec.compiler.lints.facts.training_loop import means_never
from tunec.compiler.lints.rule import Finding, rule

_NEEDS: Final = (
    ("ema_decay", "use_ema"),
    ("ema_update_interval", "use_ema"),
    ("ema_device", "use_ema"),
    ("ema_cpu_only", "use_ema"),
    ("ema_validation", "use_ema"),
    ("hub_model_id", "push_to_hub"),
    ("push_checkpoints_to_hub", "push_to_hub"),
    ("noise_offset", "offset_noise"),
    ("noise_offset_probability", "offset_noise"),
)
_UNDER_DEEPSPEED: Final = ("adam_beta1", "adam_beta2", "adam_weight_decay", "adam_epsilon")
"""simpletuner 3.1.6 and 4.10.1, run: they configure an optimizer that the DeepSpeed file lacks."""
_WAVES: Final = ("cosine", "sine")
"""simpletuner 3.1.6 and 4.10.1 helpers/training/custom_schedule.py, run: lr_warmup_steps is T_0 of
`CosineAnnealingHardRestarts` and `Sine`: Cosine learning rate expects to use warmup steps as its
interval."""
_DROPPED: Final = (
    *("repeats", "aspect_ratio_bucketing", "aspect_ratio_bucket_min", "aspect_ratio_bucket_max"),
)
"""simpletuner 3.1.6 and 4.10.1 helpers/configuration/cli_utils.py `_LEGACY_ARG_HANDLERS`."""
_CADENCE: Final = {
    "checkpointing_steps": "a checkpoint",
    "checkpoint_step_interval": "a checkpoint",
    "validation_steps": "a validation",
    "validation_step_interval": "a validation",
}
_NOT_SHARDED: Final = ("optimi-", "bnb-", "soap")
_SHARDED: Final = "adamw_schedulefree"
"""simpletuner 3.1.6 and 4.10.1 helpers/training/optimizer_param.py `FSDP2_INCOMPATIBLE_PREFIXES`,
`FSDP2_FALLBACK_OPTIMIZER`."""
_VALIDATED: Final = ("validation_prompt", "validation_prompt_library", "user_prompt_library")
"""simpletuner 3.1.6 and 4.10.1 helpers/training/trainer.py `init_validation_prompts`."""
_OF_ADAPTERS: Final = (
    *("lora_rank", "lora_alpha", "lora_type", "lycoris_config", "lora_init_type", "use_dora"),
    "init_lora",
)
_NOTHING: Final = ("false", "standard", "default")
_VAE_OF_SDXL: Final = ("sdxl", "pixart_sigma", "kolors")
"""simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py: The baked-in VAE will be used."""
_TIMESTEPS: Final = 1000
"""simpletuner 3.1.6 and 4.10.1: the default of timestep_bias_end."""


@rule("warning", "silent", consumers=("simpletuner",), reads=("simpletuner:*",))
def flags_without_effect(run: LintContext) -> Iterator[Finding]:
    """Flags of SimpleTuner that have no effect."""
    for document in configs(run):
        yield from _switches(document)
        yield from _cadence(document)
        yield from _schedule(document)
        yield from _decomposed(document)
        yield from _of_deepspeed(document)
        yield from _processes(run, document)
        yield from _of_data(document)
        yield from _unseen(document)
        yield from _biased(document)
        yield from _offloaded(document)
        yield from _sharded(document)
        yield from _unvalidated(document)
        yield from _of_another_model(document)
        yield from _of_adapters(document)


def _sharded(document: Document) -> Iterator[Finding]:
    """Some optimizers do not support the tensors of FSDP 2, and another one replaces them."""
    at, fsdp = said(document, "optimizer"), said(document, "fsdp_enable")
    if at is None or fsdp is None or not is_on(fsdp) or amount(said(document, "fsdp_version")) == 1:
        return
    if str(at.value).lower().startswith(_NOT_SHARDED):
        yield Finding(
            f"{at.value} is replaced by {_SHARDED} under FSDP 2",
            (at.label("not used"), fsdp.label("", primary=False)),
            ("a line of the log says so, and the rate and its schedule stay as written",),
            "write optimizer: torch-adamw",
        )


def _of_another_model(document: Document) -> Iterator[Finding]:
    """SDXL's VAE has four channels with its own scale: three families use it."""
    at, name = said(document, "pretrained_vae_model_name_or_path"), family(document)
    if at is None or not name or name in _VAE_OF_SDXL or "sdxl" not in str(at.value):
        return
    if "deepfloyd" not in word(document, "model_type"):
        yield Finding(
            f"{name} does not take {at.value}: its own VAE is used",
            (at.label("not used"),),
            ("The VAE model is not compatible: a line of the log says so",),
            "remove it",
        )


def _of_adapters(document: Document) -> Iterator[Finding]:
    """Settings of adapters, although the file trains the whole model."""
    kind = said(document, "model_type")
    if kind is None or word(document, "model_type") != "full":
        return
    found = [at for flag in _OF_ADAPTERS if (at := said(document, flag)) is not None]
    at = next((each for each in found if str(each.value).lower() not in _NOTHING), None)
    if at is not None:
        yield Finding(
            f"{at.path} does nothing beside model_type full: no adapter is trained",
            (at.label("not read"), kind.label("the whole model", primary=False)),
            ("every parameter is trained, which takes many times the memory",),
            "write model_type: lora, or remove it",
        )


def _unvalidated(document: Document) -> Iterator[Finding]:
    """At stage 3 SimpleTuner turns validation off, with a line in the log."""
    stage = document.get("deepspeed_config.zero_optimization.stage")
    asked = (said(document, each) for each in _VALIDATED)
    at = next((each for each in asked if each is not None and each.value), None)
    if stage is not None and stage.value == 3 and at is not None:
        yield Finding(
            f"{at.path} does nothing at ZeRO stage 3",
            (at.label("nothing is validated"), stage.label("", primary=False)),
            ("Cannot run validations with DeepSpeed ZeRO stage 3. Disabling validation",),
            "use stage 2",
        )


def _biased(document: Document) -> Iterator[Finding]:
    """A range of timesteps is a slice of a list, which is empty if the bounds are swapped."""
    first, last = said(document, "timestep_bias_begin"), said(document, "timestep_bias_end")
    if word(document, "timestep_bias_strategy") != "range" or family(document) in FLOW:
        return
    begin = amount(first) if first is not None else 0
    end = amount(last) if last is not None else _TIMESTEPS
    at = first or last
    if at is not None and begin is not None and end is not None and begin >= end:
        yield Finding(
            f"no time step is from {begin:g} on and below {end:g}: nothing is biased",
            (at.label("empty"), *([last.label("", primary=False)] if last and last != at else [])),
            ("the weights of that slice are raised, and it is empty",),
            "write the smaller number as timestep_bias_begin",
        )


def _offloaded(document: Document) -> Iterator[Finding]:
    at = said(document, "optimizer_offload_gradients")
    method = said(document, "optimizer_cpu_offload_method")
    is_off = method is None or word(document, "optimizer_cpu_offload_method") == "none"
    if at is not None and is_on(at) and is_off:
        yield Finding(
            "optimizer_offload_gradients does nothing without optimizer_cpu_offload_method",
            (at.label("not read"), *also(method)),
            ("the optimizer is built as if no method is named",),
            "write optimizer_cpu_offload_method: torchao, or remove it",
        )


def _of_data(document: Document) -> Iterator[Finding]:
    for flag in _DROPPED:
        at = said(document, flag)
        if at is not None and document.format in ("json", "toml"):
            yield Finding(
                f"{flag} does nothing in {document.name}: it is a data set's",
                (at.label("left out"),),
                (),
                "write it in the entry of multidatabackend.json",
            )


def _unseen(document: Document) -> Iterator[Finding]:
    """The evaluation loss is only sent to a tracker."""
    report = said(document, "report_to")
    if report is not None and word(document, "report_to") != "none":
        return
    for flag in ("eval_steps_interval", "eval_epoch_interval"):
        at = said(document, flag)
        if at is not None and (amount(at) or 0) > 0 and "report_to" not in document.unknown:
            yield Finding(
                f"{flag} {at.value} without a tracker: the loss is not logged",
                (at.label("computed"), *also(report)),
                (),
                "write report_to: tensorboard, or remove it",
            )


def _processes(run: LintContext, document: Document) -> Iterator[Finding]:
    """The number of processes is read from the launcher's variable, or from its command line."""
    at = said(document, "num_processes")
    if any(each.get("TRAINING_NUM_PROCESSES") is not None for each in run.documents):
        return
    if at is not None and document.format in ("json", "toml") and (amount(at) or 0) > 1:
        yield Finding(
            f"num_processes {at.value} is not read by `simpletuner train`",
            (at.label("one process is started"),),
            (
                "the launcher reads TRAINING_NUM_PROCESSES, from config.env or the environment",
                "`simpletuner jobs`, which comes with 4.x, reads it here",
            ),
            f"write TRAINING_NUM_PROCESSES={at.value} in config.env, or start with "
            f"--num_processes={at.value}",
        )


def _switches(document: Document) -> Iterator[Finding]:
    for flag, switch in _NEEDS:
        at, on = said(document, flag), said(document, switch)
        if at is None or is_on(on) or {switch, f"--{switch}", switch.upper()} & document.unknown:
            continue
        if str(at.value).lower() in ("false", "0"):
            continue
        yield Finding(
            f"{flag} does nothing without {switch}",
            (at.label("not read"), *also(on)),
            (),
            f"write {switch}: true, or remove it",
            severity="note" if switch == "push_to_hub" else None,  # it stands ready
        )


def _cadence(document: Document) -> Iterator[Finding]:
    total = said(document, "max_train_steps")
    last = amount(total) or 0
    for flag, what in _CADENCE.items():
        at = said(document, flag)
        every = amount(at) or 0
        if at is not None and total is not None and 0 < last < every:
            if means_never(int(every), int(last)):
                continue
            yield Finding(
                f"{flag} {at.value} of {total.value} steps: never {what} before the end",
                (at.label("too late"), total.label("the end", primary=False)),
                (),
                f"write {max(1, int(last) // 5)}",
            )


def _schedule(document: Document) -> Iterator[Finding]:
    warm, kind = said(document, "lr_warmup_steps"), said(document, "lr_scheduler")
    total = said(document, "max_train_steps")
    steps, last = amount(warm) or 0, amount(total) or 0
    if warm is None or steps <= 0:
        return
    if kind is not None and word(document, "lr_scheduler") == "constant":
        yield _unread(warm, kind)
    elif kind is not None and word(document, "lr_scheduler") in _WAVES:
        if steps == last:
            return
        yield Finding(
            f"lr_warmup_steps {warm.value} is no warm-up of {kind.value}, but half its period",
            (warm.label("not as written"), kind.label("", primary=False)),
            (f"the rate falls over {warm.value} steps, rises over as many, and so on to the end",),
            "write lr_scheduler: polynomial, which warms up, or max_train_steps here",
        )
    elif total is not None and 0 < last <= steps:
        yield Finding(
            f"{warm.value} steps of warm-up do not end in {total.value} steps of training",
            (warm.label("steps of rising rate"), total.label("all steps", primary=False)),
            ("the rate never reaches its height before the end",),
            f"write {max(1, int(last) * 3 // 100)}",
        )


def _of_deepspeed(document: Document) -> Iterator[Finding]:
    if said(document, "deepspeed_config") is not None:
        return
    for flag in _UNDER_DEEPSPEED:
        at = said(document, flag)
        if at is not None:
            yield Finding(
                f"{flag} does nothing without deepspeed_config",
                (at.label("not read"),),
                ("the optimizer's own numbers hold",),
                "write optimizer_beta1 and optimizer_beta2, or optimizer_config",
            )


def _decomposed(document: Document) -> Iterator[Finding]:
    dora, base = said(document, "use_dora"), said(document, "base_model_precision")
    if is_on(dora) and dora is not None and base is not None and "quanto" in str(base.value):
        yield Finding(
            "use_dora does nothing over a base of quanto",
            (dora.label("turned off"), base.label("", primary=False)),
            ("Quanto does not yet support DoRA training: plain LoRA is trained",),
            "remove it, or do not quantise the base",
        )


def _unread(warm: Place, kind: Place) -> Finding:
    return Finding(
        f"lr_warmup_steps {warm.value} does nothing: constant has no warm-up",
        (warm.label("not read"), kind.label("", primary=False)),
        (),
        "write lr_scheduler: constant_with_warmup",
    )
