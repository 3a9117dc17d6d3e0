"""Numbers that diffusers' example scripts cannot work with, and flags that exclude each other."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.checks.scripts.flags import is_whole_command
from tunec.compiler.lints.conditions import Need, Pair, check_need, check_pair, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.diffusion import commands, scripts
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, rule

_DIVISORS: Final = ("checkpointing_steps", "validation_epochs", "validation_steps")
_OF_VALIDATION: Final = ("validation_prompt", "validation_prompts", "validation_image")
_SCHEDULES: Final = (
    *("linear", "cosine", "cosine_with_restarts", "polynomial", "constant"),
    *("constant_with_warmup", "piecewise_constant"),
)
"""diffusers 0.27.2 to 0.42.1 optimization.py `SchedulerType`."""
_TRACKERS: Final = frozenset(
    {
        *("all", "aim", "tensorboard", "wandb", "trackio", "comet_ml", "mlflow", "clearml"),
        *("dvclive", "swanlab"),
    }
)
"""The union over accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `LoggerType`."""
_HIGHEST: Final = 0.1
_COUNTS: Final = ("rank", "num_vectors", "train_batch_size", "gradient_accumulation_steps")
_PACKED: Final = re.compile(r"_(flux|flux2|sd3|qwen_image)(_|$)")
_BLOCK: Final = 16
"""Pixels per side of one token: 8 per side of a VAE cell, times 2."""
_PROPERTIES: Final = ("object", "style")
_OTHERS: Final = ("prodigy", "adafactor")
_MOST: Final = 0.01
"""The highest rate in the examples' READMEs, except Prodigy's, is 1e-3 for 1 to 8 samples."""


@rule("error", "step", consumers=("diffusers",), reads=("diffusers:*",), hardware=True)
def example_number_unusable(run: LintContext) -> Iterator[Finding]:
    """A number or word that a diffusers example script parses but cannot train with."""
    for document, script in commands(run):
        if script not in scripts():
            continue
        yield from _divisors(document)
        yield from _weight(document)
        yield from _schedule(document)
        yield from _rate(run, document)
        yield from _words(document)
        yield from _counts(document)
        yield from _weights(document)
        yield from _sides(document, script)
        yield from _of_npus(run, document)


def _words(document: Document) -> Iterator[Finding]:
    """Report words that the script looks up or tokenises only after it has started."""
    report, first = document.get("report_to"), document.get("initializer_token")
    if report is not None and isinstance(report.value, str) and report.value not in _TRACKERS:
        yield Finding(
            f"report_to cannot be {report.value}",
            (report.label("unsupported logging capability"),),
            (f"accelerate knows {quoted(sorted(_TRACKERS))}",),
            "write tensorboard",
            consequence="init",
        )
    if first is not None and isinstance(first.value, str) and len(first.value.split()) > 1:
        yield Finding(
            f"initializer_token {first.value!r} is more than one token",
            (first.label("refused"),),
            ("the initializer token must be a single token",),
            f"write {first.value.split()[-1]}",
            consequence="init",
        )
    kind = document.get("learnable_property")
    if kind is not None and isinstance(kind.value, str) and kind.value not in _PROPERTIES:
        yield Finding(
            f"learnable_property {kind.value} is taken for object",
            (kind.label("not style"),),
            ("prompts of style are used for that word, and those of objects for any other",),
            "write object or style",
            severity="warning",
            consequence="silent",
        )


def _weights(document: Document) -> Iterator[Finding]:
    """Report a loss weight that removes the prior, and a learning rate too high for Adam."""
    share, rate = document.get("prior_loss_weight"), document.get("learning_rate")
    if share is not None and share.value == 0 and document.get("with_prior_preservation"):
        yield Finding(
            "prior_loss_weight 0 leaves nothing of the prior",
            (share.label("not counted"),),
            ("images of the class are made and trained on, and their loss is multiplied by it",),
            "write 1.0, or leave out with_prior_preservation",
            severity="warning",
            consequence="silent",
        )
    is_free = str(document.value("optimizer", "adamw")).lower() in _OTHERS
    if rate is not None and is_number(rate.value) and rate.value >= _HIGHEST and not is_free:
        yield Finding(
            f"a learning rate of {rate.value} is too high for Adam",
            (rate.label("no rate of Adam"),),
            ("Adam moves every weight by about the rate in each step",),
            "write 1e-4, or --optimizer prodigy, whose rate is 1",
            severity="warning",
        )


def _counts(document: Document) -> Iterator[Finding]:
    workers = document.get("dataloader_num_workers")
    if workers is not None and is_number(workers.value) and workers.value < 0:
        yield Finding(
            f"dataloader_num_workers cannot be {workers.value}",
            (workers.label("refused"),),
            ("num_workers option should be non-negative; use num_workers=0",),
            "write 0",
            consequence="init",
        )
    for flag in _COUNTS:
        at = document.get(flag)
        if at is not None and is_number(at.value) and at.value < 1:
            yield Finding(
                f"{flag} cannot be {at.value}",
                (at.label("refused"),),
                ("it is at least 1",),
                "write 4" if flag == "rank" else "write 1",
                consequence="init",
            )


def _sides(document: Document, script: str) -> Iterator[Finding]:
    """Report image sides that make odd latent sides, which cannot be packed two by two."""
    at = document.get("resolution")
    if at is None or not _PACKED.search(script) or document.get("aspect_ratio_buckets"):
        return
    if isinstance(at.value, int) and at.value > 0 and at.value % _BLOCK:
        yield Finding(
            f"resolution {at.value} cannot be divided by {_BLOCK}",
            (at.label("an odd number of latents"),),
            ("the first forward pass fails on a shape that does not fit",),
            f"write {max(_BLOCK, at.value // _BLOCK * _BLOCK)}",
        )


def _of_npus(run: LintContext, document: Document) -> Iterator[Finding]:
    at, device = document.get("enable_npu_flash_attention"), run.environment.weakest
    if at is not None and at.value is True and device and device.compute_capability is not None:
        yield Finding(
            f"enable_npu_flash_attention on {device.title}",
            (at.label("refused"),),
            ("npu flash attention is supported only on npu devices",),
            "remove it",
            consequence="init",
        )


def _divisors(document: Document) -> Iterator[Finding]:
    validates = any(document.get(each) for each in _OF_VALIDATION)
    for flag in _DIVISORS:
        at = document.get(flag)
        if at is None or at.value != 0 or (flag.startswith("validation") and not validates):
            continue
        yield Finding(
            f"{flag} is 0: the run fails where it would first be asked",
            (at.label("ZeroDivisionError"),),
            ("the count of epochs or steps is divided by it",),
            "write 1 or more, or leave out what is validated",
        )


def _weight(document: Document) -> Iterator[Finding]:
    at = document.get("snr_gamma")
    if at is not None and is_number(at.value) and at.value <= 0:
        yield Finding(
            f"snr_gamma {at.value} weighs every loss with {at.value}",
            (at.label("nothing is learnt"),),
            ("the weight is the smaller one of snr_gamma and the signal-to-noise ratio",),
            "write 5.0, or leave it out",
            consequence="silent",
        )


def _schedule(document: Document) -> Iterator[Finding]:
    at = document.get("lr_scheduler")
    if at is None or not isinstance(at.value, str) or at.value in _SCHEDULES:
        return
    near = nearest(at.value, _SCHEDULES)[:1]
    yield Finding(
        f"lr_scheduler cannot be {at.value}",
        (at.label("is not a valid SchedulerType"),),
        (f"taken: {quoted(sorted(_SCHEDULES))}",),
        f"did you mean {quoted(near)}?" if near else "write constant",
        consequence="init",
    )


def _rate(run: LintContext, document: Document) -> Iterator[Finding]:
    """Report a learning rate that becomes too high when scale_lr multiplies it."""
    switch, at = document.get("scale_lr"), document.get("learning_rate")
    world = run.value("parallel.world")
    if switch is None or at is None or not is_number(at.value):
        return
    if str(document.value("optimizer", "adamw")).lower() in _OTHERS:
        return
    micro = document.value("train_batch_size", 1)
    steps = document.value("gradient_accumulation_steps", 1)
    counts = {"samples": micro, "accumulation": steps, "processes": world or 1}
    if not all(isinstance(each, int) and each > 0 for each in counts.values()):
        return
    rate = at.value * micro * steps * (world or 1)
    if rate >= _MOST and rate > at.value:
        yield Finding(
            f"scale_lr makes a learning rate of {rate:g} of {at.value:g}",
            (at.label("multiplied"), switch.label("", primary=False)),
            ("Adam moves every weight by about the rate in each step",),
            "leave out scale_lr, or write the rate of one sample",
            sum=tuple(Term(name, each, "") for name, each in counts.items()),
            severity="warning",
        )


_PAIRS: Final = (
    Pair("hub_token", "report_to=wandb", "the token would be written into the tracked config"),
    Pair("train_text_encoder", "pre_compute_text_embeddings", "embeddings of frozen weights"),
    Pair("train_text_encoder", "train_text_encoder_ti", "specify only one"),
    Pair("snr_gamma", "do_edm_style_training", "Min-SNR is for other noise schedules"),
    Pair("do_fp8_training", "bnb_quantization_config_path", "cannot both be passed"),
)
_SOURCES: Final = (
    ("dataset_name", "instance_data_dir"),
    ("dataset_name", "train_data_dir"),
    ("dataset_name", "jsonl_for_train"),
)
"""Pairs of flags that name the data; a script takes one of a pair, and its flags show which
pair."""
_NEEDS: Final = (
    Need("with_prior_preservation", ("class_data_dir",), "the class images are kept there"),
    Need("with_prior_preservation", ("class_prompt",), "prompt for class images"),
    Need("aspect_ratio_buckets", ("use_aspect_ratio_buckets",)),
)
_CONTROLNETS: Final = (
    Need("validation_prompt", ("validation_image",)),
    Need("validation_image", ("validation_prompt",)),
)
_ONE_SOURCE: Final = (
    *("train_dreambooth", "train_control_", "train_controlnet_flux", "train_controlnet_sd3"),
)
_EIGHT: Final = 8
"""Pixels per side of a VAE cell."""


@rule("error", "parse", consumers=("diffusers",), reads=("diffusers:*",))
def example_flags_refused_together(run: LintContext) -> Iterator[Finding]:
    """Flags that a diffusers example script refuses together, or one without the other."""
    for document, script in commands(run):
        for pair in _PAIRS:
            yield from check_pair(run, document, pair)
        for need in _NEEDS:
            yield from check_need(run, document, need)
        yield from _data(document, script)
        if script.startswith("train_controlnet"):
            for need in _CONTROLNETS:
                yield from check_need(run, document, need)
            yield from _both_sides(document)
            yield from _pictures(document)
        yield from _two_models(run, document)
        yield from _share(document)
        yield from _both_trained(run, document, script)


def _data(document: Document, script: str) -> Iterator[Finding]:
    flags = scripts().get(script, {}).get("flags", ())
    pair = next((each for each in _SOURCES if set(each) <= {*flags}), None)
    if pair is None:
        return
    first, second = (document.get(flag) for flag in pair)
    is_open = document.unknown & {*pair}
    if first and second and script.startswith(_ONE_SOURCE):
        yield Finding(
            f"{pair[0]} cannot stand beside {pair[1]}",
            (first.label("refused"), second.label("", primary=False)),
            ("specify only one of them",),
            "remove one of the two",
        )
    if not first and not second and not is_open and (at := _any(document)) is not None:
        yield Finding(
            f"neither {pair[0]} nor {pair[1]} is given",
            (at.key_label("among these flags"),),
            ("the script stops if no data is given",),
            f"write --{pair[1]}",
            # a part of a command is shown more often than all of it
            severity="warning" if is_whole_command(document) else "note",
        )


def _any(document: Document) -> Place | None:
    return next(iter(document.found.values()), None)


def _both_sides(document: Document) -> Iterator[Finding]:
    at = document.get("resolution")
    if at is not None and isinstance(at.value, int) and at.value % _EIGHT:
        yield Finding(
            f"resolution {at.value} cannot be divided by {_EIGHT}",
            (at.label("refused"),),
            ("the VAE and the control network would see images of different sizes",),
            f"write {at.value // _EIGHT * _EIGHT}",
        )


def _pictures(document: Document) -> Iterator[Finding]:
    """Report unequal numbers of validation images and prompts, if neither number is one."""
    images, prompts = document.get("validation_image"), document.get("validation_prompt")
    if images is None or prompts is None or {images.path, prompts.path} & document.unknown:
        return
    count, told = (len(at.value) if isinstance(at.value, list) else 1 for at in (images, prompts))
    if count != told and 1 not in (count, told):
        yield Finding(
            f"{count} validation_image beside {told} validation_prompt",
            (images.label("refused"), prompts.label("", primary=False)),
            ("one of the two is one, or there are as many of each",),
            "give each picture its prompt",
        )


def _two_models(run: LintContext, document: Document) -> Iterator[Finding]:
    """Report a trained text encoder under DeepSpeed: accelerate makes one engine for one model."""
    at = where(document, "train_text_encoder")
    engine = next(
        (each for each in run.each("accelerate", "distributed_type") if each.value == "DEEPSPEED"),
        None,
    ) or next((each for each in run.each("launch", "flags.use_deepspeed") if each.value), None)
    if at is not None and engine is not None:
        yield Finding(
            "train_text_encoder under DeepSpeed, which takes one model",
            (at.label("a second model"), engine.label("", primary=False)),
            ("AssertionError: You can't use same Accelerator() instance with multiple models",),
            "leave the text encoder frozen, or do without DeepSpeed",
            consequence="init",
        )


def _share(document: Document) -> Iterator[Finding]:
    at = document.get("proportion_empty_prompts")
    if at is not None and isinstance(at.value, int | float) and not 0 <= at.value <= 1:
        yield Finding(
            f"proportion_empty_prompts {at.value} is no share",
            (at.label("refused"),),
            ("it must be in the range [0, 1]",),
            "write a share such as 0.2",
        )


def _both_trained(run: LintContext, document: Document, script: str) -> Iterator[Finding]:
    """Report accumulation for two models in several processes, which only one script refuses."""
    at = where(document, "gradient_accumulation_steps>1")
    beside = where(document, "train_text_encoder")
    world = run.world
    if script != "train_dreambooth" or not at or not beside or world is None or world.value < 2:
        return
    yield Finding(
        "gradients of unet and text encoder cannot be accumulated over several processes",
        (at.label("refused"), beside.label("", primary=False)),
        (f"{world.reason}",),
        "write 1, or train with one process",
    )
