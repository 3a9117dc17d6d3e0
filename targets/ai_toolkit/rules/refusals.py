"""Rules about what ai-toolkit refuses: key combinations, incomplete jobs, and data sets."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, also
from tunec.compiler.lints.rows import Row, found, reads_of
from tunec.compiler.lints.rule import Finding, rule

_KIND: Final = "ai-toolkit"
_ERROR: Final = "ValueError before the model is loaded"


def _refused(
    when: str, beside: tuple[str, ...], message: str, help: str, why: str | tuple[str, ...] = _ERROR
) -> Row:
    return Row(f"{_KIND}:{when}", message, "refused", why, help, beside=beside)


def _pair(when: str, other: str, help: str = "remove one of the two", why: str = _ERROR) -> Row:
    return _refused(when, (other,), "{0.key} cannot be combined with {1.key} {1.value}", help, why)


_TOGETHER: Final = (
    _refused(
        "save.save_format!=safetensors|diffusers",
        (),
        "save_format {0.value} is neither safetensors nor diffusers",
        "write safetensors",
    ),
    _refused(
        "train.gradient_accumulation>1",
        ("train.gradient_accumulation_steps!=1",),
        "gradient_accumulation cannot be combined with gradient_accumulation_steps {1.value}",
        "remove gradient_accumulation_steps",
    ),
    *(
        _refused(
            f"model.{flag}=true",
            ("no model.is_flux=true",),
            "{0.key} is refused for a model that is not FLUX by is_flux",
            "remove {0.key}, or write is_flux: true",
            (_ERROR, "arch is looked at after the check (`ModelConfig.__init__`)"),
        )
        for flag in ("split_model_over_gpus", "attn_masking")
    ),
    _refused(
        "train.bypass_guidance_embedding=true",
        ("train.do_guidance_loss=true",),
        "bypass_guidance_embedding cannot be combined with do_guidance_loss",
        "remove one of the two",
    ),
    _refused(
        "model.accuracy_recovery_adapter",
        ("model.assistant_lora_path",),
        "accuracy_recovery_adapter cannot be combined with assistant_lora_path",
        "remove one of the two",
    ),
    *(
        _refused(
            f"model.qtype~accuracy_recovery_adapters/{family}",
            (f"no model.arch~{family}",),
            f"the recovery adapter is one of {family}, and model.arch is another",
            "write qtype: qfloat8, or the adapter of this model",
            "no layer has its names: there are not any lora modules in this network",
        )
        for family in ("wan22", "qwen_image")
    ),
    _refused(
        "train.diff_output_preservation=true",
        ("train.blank_prompt_preservation=true",),
        "diff_output_preservation cannot be combined with blank_prompt_preservation",
        "remove one of the two",
    ),
    _refused(
        "model.arch=qwen_image_edit|boogu_image_edit",
        ("train.unload_text_encoder=true",),
        "unload_text_encoder is refused for {0.value}, which encodes images with the text",
        "remove unload_text_encoder",
    ),
    _refused(
        "model",
        ("no model.name_or_path?",),
        "name_or_path, the model to train, is missing",
        "write name_or_path",
    ),
)
_OPTIMIZERS: Final = (
    *("adam8", "adamw8", "adam8bit", "ademamix8bit", "adamw8bit", "lion8bit", "adam", "adamw"),
    *("lion", "adagrad", "adafactor", "automagic", "automagic2", "automagic3"),
    "automagicexperiment",
)
"""The names in toolkit/optimizer.py `get_optimizer`; names that begin as Prodigy or D-Adaptation do
are accepted too."""
_SCHEDULES: Final = (
    *("cosine", "cosine_with_restarts", "step", "constant", "linear", "constant_with_warmup"),
    *("polynomial", "piecewise_constant"),
)
"""toolkit/scheduler.py `get_lr_scheduler`, and diffusers' `SchedulerType`."""
_PRESERVED: Final = "train.diff_output_preservation=true"
_OF_TRAINING: Final = (
    _refused(
        _PRESERVED,
        ("no network",),
        "diff_output_preservation requires a network",
        "write a network, or remove it",
    ),
    _pair(_PRESERVED, "train.train_text_encoder=true"),
    _refused(
        "train.blank_prompt_preservation=true",
        ("no network",),
        "blank_prompt_preservation requires a network",
        "write a network, or remove it",
    ),
    _refused(
        "train.adapter_assist_type!=t2i|control_net",
        ("(train.adapter_assist_name_or_path)",),
        "adapter_assist_type {0.value} is neither t2i nor control_net",
        "write t2i",
    ),
    *(
        _pair("train.train_text_encoder=true", f"train.{key}=true")
        for key in ("unload_text_encoder", "cache_text_embeddings")
    ),
    _pair(
        "train.train_turbo=true",
        "train.loss_target=source|unaugmented",
        why="AssertionError at the first step",
    ),
    _pair(
        "train.single_item_batching=true",
        "model.refiner_name_or_path",
        why="ValueError at the first step",
    ),
    _pair("train.do_cfg=true", "adapter.type=control_net", why="ValueError at the first step"),
    *(
        _refused(
            "train.unload_text_encoder=true",
            ("adapter.type=ip_adapter|t2i|control_net|clip|reference", f"({kept}=true)"),
            "unload_text_encoder cannot be combined with an adapter of type {1.value}",
            "remove unload_text_encoder",
            "ValueError at the first step: prior predictions do not support it",
        )
        for kept in ("train.diff_output_preservation", "train.blank_prompt_preservation")
    ),
    _refused(
        "adapter.type=control_net",
        ("no adapter.name_or_path?",),
        "a ControlNet requires name_or_path",
        "write name_or_path",
    ),
    _refused(
        "decorator",
        ("no model.is_flux=true", "no model.arch=flux|flex1"),
        "a decorator is refused for a model that is not FLUX",
        "remove decorator, or write arch: flux",
    ),
    _refused(
        "train.content_or_style!=balanced|style|content",
        (),
        "content_or_style cannot be {0.value}",
        "write balanced, style or content",
        "ValueError at the first step",
    ),
    _refused(
        f"train.lr_scheduler!={'|'.join(_SCHEDULES)}",
        (),
        "lr_scheduler {0.value} is no schedule",
        "write constant, or another that it has",
    ),
)
"""extensions_built_in/sd_trainer/SDTrainer.py, jobs/process/BaseSDTrainProcess.py."""
ROWS: Final = (*_TOGETHER, *_OF_TRAINING)


@rule(
    "error",
    "init",
    consumers=(_KIND,),
    reads=(*reads_of(ROWS), f"{_KIND}:job", f"{_KIND}:train", f"{_KIND}:datasets"),
)
def ai_toolkit_config_refused(run: LintContext) -> Iterator[Finding]:
    """The classes of a config, or the code that reads it first, refuse the config."""
    yield from found(ROWS, run)
    for document in run.of(_KIND):
        yield from _around(document)
        yield from _preserved(document)
        yield from _optimizer(document)
        yield from _sets(document)


def _around(document: Document) -> Iterator[Finding]:
    """A job lacks keys around its process."""
    place = document.get("job") or document.get("type") or document.get("train")
    if place is None:
        return
    has_name, has_process = "name" in document.found, "train" in document.found
    lacking = {
        "job": "job" in document.found,
        "config": has_name or has_process,
        "config.name": has_name,
        "config.process": has_process,
        "config.process[0].type": "type" in document.found,
    }
    missing = next((key for key, is_there in lacking.items() if not is_there), None)
    if missing is not None:
        yield Finding(
            f"{missing} is missing",
            (place.label("refused"),),
            (f"ValueError: config file must have {missing}",),
            f"write {missing}",
        )


def _preserved(document: Document) -> Iterator[Finding]:
    """Output preservation needs a trigger word, for all data sets or for one."""
    place = document.get("train.diff_output_preservation")
    named = any(path.rpartition(".")[2] == "trigger_word" for path in document.found)
    if place is not None and place.value is True and not named:
        yield Finding(
            "diff_output_preservation requires a trigger_word",
            (place.label("refused"),),
            ("ValueError: diff_output_preservation requires a trigger_word to be set",),
            "write trigger_word, or remove it",
        )
    target = document.get("train.guidance_loss_target")
    if target is not None and not isinstance(target.value, int | float | list):
        yield Finding(
            f"guidance_loss_target {target.value} is neither a number nor a list of two",
            (target.label("refused"),),
            ("ValueError: Unknown guidance loss target type",),
            "write a number",
        )


def _optimizer(document: Document) -> Iterator[Finding]:
    place = document.get("train.optimizer")
    word = str(place.value).lower() if place is not None else ""
    if place is None or word in _OPTIMIZERS or word.startswith(("prodigy", "dadaptation")):
        return
    yield Finding(
        f"{place.value} is no optimizer of ai-toolkit",
        (place.label("refused"),),
        ("ValueError: Unknown optimizer type",),
        "write adamw8bit, or another that it has",
    )


# ── data ─────────────────────────────────────────────────────────────────────────────────────────


def _sets(document: Document) -> Iterator[Finding]:
    """Findings for each data set, and for settings that must be the same in all sets."""
    held = document.value("datasets")
    places = [f"datasets.{key}" for key in held or () if str(key).startswith("[")]
    for at in places:
        yield from _set(document, at)
    yield from _cached(document, places)
    yield from _in_buckets(document, places)


def _set(document: Document, at: str) -> Iterator[Finding]:
    kind, batch = document.get(f"{at}.type"), document.get(f"{at}.batch_size")
    buckets, poi = document.get(f"{at}.buckets"), document.get(f"{at}.poi")
    control, adapter = document.get(f"{at}.control_path"), document.get("adapter.type")
    if poi is not None and poi.value is not None:
        why = "ValueError: poi is deprecated and is no longer supported"
        yield Finding("poi is no longer read", (poi.label("refused"),), (why,), "remove poi")
    if kind is not None and kind.value != "image":
        yield Finding(
            f"a set of type {kind.value} is refused",
            (kind.label("refused"),),
            ("ValueError: invalid dataset type",),
            "remove type",
        )
    if batch is not None and buckets is not None and buckets.value is False:
        yield Finding(
            "a set's own batch_size requires buckets",
            (batch.label("refused"), *also(buckets, "no buckets")),
            ("ValueError: Dataset level batch_size requires buckets to be enabled",),
            "remove batch_size, or buckets",
        )
    is_own = document.get(f"{at}.clip_image_path") is None
    if control is not None and adapter is not None and adapter.value == "ip_adapter" and is_own:
        yield Finding(
            "images for an IP adapter are named by clip_image_path",
            (control.label("refused"), *also(adapter, "the adapter")),
            ("ValueError: IPAdapter control image is now 'clip_image_path'",),
            "rename control_path to clip_image_path",
        )


def _cached(document: Document, places: list[str]) -> Iterator[Finding]:
    """Text embeddings of one data set are cached, but not those of another."""
    asked = [document.get(f"{at}.cache_text_embeddings") for at in places]
    on = [place for place in asked if place is not None and place.value is True]
    if on and len(on) < len(places) and document.value("train.cache_text_embeddings") is not True:
        yield Finding(
            "text embeddings of one set are cached, and those of another are not",
            (on[0].label("cached"),),
            ("ValueError: All datasets must have cache_text_embeddings set to True",),
            "write cache_text_embeddings for every set",
        )


def _in_buckets(document: Document, places: list[str]) -> Iterator[Finding]:
    """One data set uses buckets, the default, but another does not."""
    asked = [document.get(f"{at}.buckets") for at in places]
    off = [place for place in asked if place is not None and place.value is False]
    if off and len(off) < len(places):
        yield Finding(
            "one set has buckets, and another has none",
            (off[0].label("refused"),),
            ("AssertionError: you either need all buckets or none",),
            "write buckets: false for every set, or for none",
        )
