"""SimpleTuner's flags as files and commands spell them, and the example scripts of diffusers.

Of scripts that train one denoiser by itself there is a view for the account, where all that it asks
for is written; its kind, `EXAMPLE`, tells what differs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.wording import nearly
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.training_loop import number_of
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import keys
from tunec.compiler.lints.views import read_as, view
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace

_NAMED: Final[Mapping[str, str]] = {
    "RESUME_CHECKPOINT": "resume_from_checkpoint",
    "DATALOADER_CONFIG": "data_backend_config",
    "TRAINING_SEED": "seed",
    "USE_XFORMERS": "enable_xformers_memory_efficient_attention",
    "MINIMUM_RESOLUTION": "minimum_image_size",
    "PUSH_CHECKPOINTS": "push_checkpoints_to_hub",
    "MAX_NUM_STEPS": "max_train_steps",
    "NUM_EPOCHS": "num_train_epochs",
    "CHECKPOINTING_STEPS": "checkpoint_step_interval",
    "CHECKPOINTING_LIMIT": "checkpoints_total_limit",
    "HUB_MODEL_NAME": "hub_model_id",
    "MODEL_NAME": "pretrained_model_name_or_path",
    "USE_GRADIENT_CHECKPOINTING": "gradient_checkpointing",
    "VALIDATION_STEPS": "validation_step_interval",
    "LR_SCHEDULE": "lr_scheduler",
    "TRAINING_NUM_PROCESSES": "num_processes",
    "TRAINING_NUM_MACHINES": "num_machines",
}
_SAME: Final = frozenset(
    {
        *("allow_tf32", "aspect_bucket_rounding", "aws_max_pool_connections"),
        *("base_model_precision", "caption_dropout_probability", "checkpoint_epoch_interval"),
        *("checkpoint_step_interval", "deepfloyd_validation_pipeline_mode"),
        *("deepfloyd_validation_stage1_guidance", "deepfloyd_validation_stage1_model"),
        *("deepfloyd_validation_stage1_num_inference_steps"),
        *("deepfloyd_validation_stage2_guidance", "deepfloyd_validation_stage2_model"),
        *("deepfloyd_validation_stage2_num_inference_steps"),
        *("deepfloyd_validation_stage3_guidance", "deepfloyd_validation_stage3_mode"),
        *("deepfloyd_validation_stage3_model", "deepfloyd_validation_stage3_noise_level"),
        *("disable_benchmark", "enable_chunked_feed_forward", "feed_forward_chunk_size"),
        *("flux_guidance_value", "flux_lora_target", "gradient_accumulation_steps"),
        *("gradient_checkpointing_offload_attention"),
        *("gradient_checkpointing_offload_pin_memory_max_buckets"),
        *("gradient_checkpointing_offload_prefetch", "gradient_checkpointing_segment_stride"),
        *("image_processing_batch_size", "inference_scheduler_timestep_spacing"),
        *("learning_rate", "lora_type", "lr_end", "lr_warmup_steps"),
        *("ltx2_validation_audio_guidance", "ltx2_validation_pipeline_mode"),
        *("ltx2_validation_spatial_upsampler_filename"),
        *("ltx2_validation_spatial_upsampler_model", "lycoris_config"),
        *("metadata_update_interval", "mixed_precision", "model_card_safe_for_work"),
        *("model_family", "model_type", "optimizer", "output_dir"),
        *("pixart_validation_pipeline_mode", "pixart_validation_stage1_model"),
        *("pixart_validation_stage2_model", "post_checkpoint_script", "post_upload_script"),
        *("publishing_config", "push_to_hub", "push_to_hub_background", "quantization_config"),
        *("quantize_via", "qwen_text_encoder_model_name_or_path", "read_batch_size"),
        *("resolution", "resolution_type", "sdnq_compile_mode", "sdnq_dequantize_fp32"),
        *("sdnq_group_size", "sdnq_hadamard_group_size", "sdnq_modules_dtype_dict"),
        *("sdnq_modules_quant_config", "sdnq_modules_to_not_convert"),
        *("sdnq_modules_to_not_use_matmul", "sdnq_quantized_matmul_dtype", "sdnq_svd_rank"),
        *("sdnq_svd_steps", "sdnq_use_hadamard", "sdnq_use_quantized_matmul"),
        *("sdnq_use_static_quantization", "sdnq_use_stochastic_rounding", "sdnq_use_svd"),
        *("sdnq_weights_dtype", "sdxl_validation_pipeline_mode"),
        *("sdxl_validation_stage1_model", "sdxl_validation_stage2_model", "text_cache_disable"),
        *("text_cache_ondemand", "text_encoder_batch_size", "torch_num_threads"),
        *("tracker_project_name", "tracker_run_name", "train_batch_size"),
        *("training_scheduler_timestep_spacing", "use_dora", "use_ema", "validate_after_epoch"),
        *("validate_after_step", "validation_epoch_interval", "validation_external_background"),
        *("validation_external_script", "validation_guidance", "validation_guidance_real"),
        *("validation_guidance_rescale", "validation_input", "validation_method"),
        *("validation_negative_prompt", "validation_no_cfg_until_timestep"),
        *("validation_num_inference_steps", "validation_prompt", "validation_resolution"),
        *("validation_seed", "validation_step_interval", "validation_torch_compile"),
        *("wan_validation_load_other_stage", "write_batch_size"),
    }
)
VARIABLES: Final[Mapping[str, str]] = {**{name.upper(): name for name in _SAME}, **_NAMED}
"""simpletuner 3.1.6 and 4.10.1 helpers/configuration/env_file.py `env_to_args_map`: the flag of
each variable that becomes one in either release, 132 of some 570 flags."""
MORE: Final = "TRAINER_EXTRA_ARGS"
_WORD: Final = re.compile(r"\A--(\w+)(?:=(.*))?\Z", re.DOTALL)


def is_env_file(document: Document) -> bool:
    """Whether a document of SimpleTuner sets its flags by variables."""
    names = (*VARIABLES, MORE)
    return document.format in ("shell", "env") and any(name in document.found for name in names)


@cached()
def variables_of(flag: str) -> tuple[str, ...]:
    """The variables that set a flag; empty if only `TRAINER_EXTRA_ARGS` can set it."""
    return tuple(name for name, each in VARIABLES.items() if each == flag)


def extra(document: Document) -> Mapping[str, Place]:
    """The flags in TRAINER_EXTRA_ARGS of a config.env, each at the place of the variable.

    simpletuner 3.1.6 and 4.10.1 helpers/configuration/env_file.py: the text is split at blanks.
    """
    at = document.get(MORE)
    if at is None or not isinstance(at.value, str):
        return {}
    flags: dict[str, Place] = {}
    name = ""
    for text in at.value.split():
        found = _WORD.match(text)
        if found is not None:
            name, value = found[1], found[2]
            flags[name] = read_as(at, True if value is None else value)
        elif name:
            flags[name] = read_as(at, text)
    return flags


def flags_view(document: Document) -> Document | None:
    """The flags that a config.env comes to, under their names in config.json, where it is one.

    simpletuner 3.1.6 and 4.10.1 helpers/configuration/env_file.py `load_env_config`: a variable
    that says false becomes none; what TRAINER_EXTRA_ARGS says comes last, and argparse takes it.
    """
    if not is_env_file(document):
        return None
    from tunec.compiler.frontend.shell_flags import typed  # compiling reads no shell

    told = {**dict(_of_variables(document)), **extra(document)}
    found = {flag: read_as(at, typed(str(at.value))) for flag, at in told.items()}
    unknown = {VARIABLES[name] for name in document.unknown if name in VARIABLES}
    return replace(view(document, document.kind, found), unknown=frozenset(unknown))


def _of_variables(document: Document) -> Iterator[tuple[str, Place]]:
    for name, flag in VARIABLES.items():
        at = document.get(name)
        if at is not None and str(at.value).strip().lower() not in ("", "false"):
            yield flag, at


class DataSet(Struct, frozen=True):
    """One entry of the list."""

    document: Document
    position: str
    """`[0]`: its key in the document."""

    def place(self, key: str) -> Place | None:
        """Where a key of the entry is written."""
        return self.document.get(f"{self.position}.{key}")

    def value(self, key: str, otherwise: Any = None) -> Any:
        """The value of a key of the entry."""
        return self.document.value(f"{self.position}.{key}", otherwise)

    @property
    def kind(self) -> str:
        """Its `dataset_type`; by default images."""
        return str(self.value("dataset_type") or "image")


def lists(run: LintContext) -> Iterator[tuple[Document, tuple[DataSet, ...]]]:
    """Each list of data sets, without the entries that are turned off."""
    for document in run.of("simpletuner-data"):
        sets = (DataSet(document, key) for key in document.found if "." not in key)
        yield (
            document,
            tuple(
                each for each in sets if not each.value("disabled") and not each.value("disable")
            ),
        )


FLOW: Final = frozenset(
    {
        *("ace_step", "auraflow", "chroma", "flux", "flux2", "hidream", "hunyuanvideo"),
        *("kandinsky5_image", "kandinsky5-image", "kandinsky5_video", "kandinsky5-video"),
        *("ltxvideo", "lumina2", "omnigen", "qwen_image", "sana", "sanavideo", "sd3", "wan"),
        *("z_image", "z-image"),
    }
)
"""simpletuner 3.1.6 helpers/models/*/model.py `PREDICTION_TYPE = PredictionTypes.FLOW_MATCHING`."""
EPSILON: Final = frozenset(
    {"kolors", "pixart", "pixart_sigma", "sd1x", "sd2x", "sdxl", "deepfloyd"}
)
"""simpletuner 3.1.6 helpers/models/*/model.py `PREDICTION_TYPE`: EPSILON or V_PREDICTION."""

_OFF: Final[tuple[Any, ...]] = (False, "false", {})


def configs(run: LintContext) -> Iterator[Document]:
    """The documents that hold SimpleTuner's flags."""
    return (each for each in run.of("simpletuner") if not each.is_view)


def said(document: Document, flag: str) -> Place | None:
    """Where a flag is written, under any of its spellings; None also if it is null."""
    names = (flag, f"--{flag}", *variables_of(flag))
    found = (*(document.get(name) for name in names), extra(document).get(flag))
    return next((at for at in found if at is not None and at.value not in (None, "None", "")), None)


def flags_read(*flags: str) -> tuple[str, ...]:
    """The `reads` of a rule that uses flags through `said`."""
    names = (name for flag in flags for name in (flag, f"--{flag}", *variables_of(flag)))
    return keys("simpletuner", *names, MORE)


def word(document: Document, flag: str, otherwise: str = "") -> str:
    """The lower-case text of a flag."""
    at = said(document, flag)
    return str(at.value).strip().lower() if at is not None else otherwise


def is_on(at: Place | None) -> bool:
    """Whether a switch is on: SimpleTuner accepts words as well as booleans."""
    return at is not None and str(at.value).strip().lower() in ("true", "1", "yes", "on")


def amount(at: Place | None) -> float | None:
    """The number of a flag, which may be written as text."""
    return number_of(at.value) if at is not None else None


def family(document: Document) -> str:
    """The model family in lower case; empty if the file has none."""
    return word(document, "model_family")


def is_lora(document: Document) -> bool:
    """Whether adapters are trained."""
    return "lora" in word(document, "model_type", "full")


def deepspeed_of(run: LintContext, document: Document) -> Place | None:
    """The setting that selects DeepSpeed: SimpleTuner's own flag, or else accelerate's file."""
    own = said(document, "deepspeed_config")
    if own is not None:
        return None if own.value in _OFF else own
    found = run.said("accelerate", "distributed_type")
    return found if found is not None and str(found.value).upper() == "DEEPSPEED" else None


def zero_stage(run: LintContext, at: Place) -> Any:
    """The ZeRO stage where DeepSpeed is turned on: in that mapping, or the file; None: unknown."""
    if isinstance(at.value, dict):
        block = at.value.get("zero_optimization", {})
        return block.get("stage", 0) if isinstance(block, dict) else None
    return run.effective("deepspeed", "zero_optimization.stage").value


KIND: Final = "diffusers"
_FILE: Final = "diffusers/examples.json"
"""Written by `tunec.targets.generate_example_flags` from the scripts of 15 releases."""

_LIKE: Final = 0.88
_MOST_STRANGE: Final = 2
"""The number of unknown flags above which a script is another one of the same name: peft's
examples/boft_dreambooth also has a train_dreambooth.py."""


def commands(run: LintContext) -> Iterator[tuple[Document, str]]:
    """The flags of each example that the run starts, with the name of its script."""
    launched: dict[str, str] = {}
    for each in run.documents:
        if each.kind == "launch" and not each.is_view:
            launched[each.name] = _script(each.value("script"))
        if each.kind == KIND:
            script = launched.get(each.name, "")
            yield each, "" if _is_of_another(each, script, run) else script


def _is_of_another(document: Document, script: str, run: LintContext) -> bool:
    """Whether unknown flags show that this is another script of the same name, or a changed one."""
    flags = scripts().get(script, {}).get("flags", ())
    strange = [path for path in document.found if not is_flag(path, flags)]
    started = run.started.get(document.name, ())
    if any(run.own.parses(each, started) for each in strange):
        return True
    return sum(not is_near(path, flags) for path in strange) > _MOST_STRANGE


def is_flag(path: str, flags: Sequence[str]) -> bool:
    """Whether it is a flag, or a prefix that argparse accepts for it."""
    return any(flag.startswith(path) for flag in flags)


def is_near(path: str, flags: Sequence[str]) -> bool:
    """Whether it is nearly a flag."""
    return nearly(path, frozenset(flags), _LIKE) is not None


def _script(words: Any) -> str:
    """`train_dreambooth_lora` from the words after a launcher."""
    is_list = isinstance(words, Sequence) and not isinstance(words, str)
    first = words[0] if is_list and words else words
    return PurePath(first).stem if isinstance(first, str) else ""


@cached()
def scripts() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """By script: `flags` that any release accepts, and `required` by all releases."""
    found: Mapping[str, Mapping[str, Sequence[str]]] = schema(_FILE)["scripts"]
    return found


@cached()
def choices() -> Mapping[str, Sequence[str]]:
    """The choices of flags whose choices are the same in every script."""
    found: Mapping[str, Sequence[str]] = schema(_FILE)["choices"]
    return found


@cached()
def types() -> Mapping[str, str]:
    """`int`, `float`, `switch` or `many` for flags of one type in every script; else text."""
    found: Mapping[str, str] = schema(_FILE)["types"]
    return found


EXAMPLE: Final = "diffusers-run"
_SCRIPTS: Final = re.compile(r"train_(text_to_image|dreambooth)(_lora)?(_sdxl|_sd3|_flux)?\.py\Z")
_FLAGS_ALIKE: Final = (
    *("pretrained_model_name_or_path", "train_batch_size", "mixed_precision", "resolution"),
    "gradient_accumulation_steps",
)
_NEEDED: Final = ("pretrained_model_name_or_path", "train_batch_size", "mixed_precision")
_ELSEWHERE: Final = (
    *("bnb_quantization_config_path", "do_fp8_training", "offload", "use_adafactor"),
    "lora_layers",
)
"""Flags with which the denoiser is stored or stepped otherwise. Those with which more is trained or
kept than the denoiser (`train_text_encoder`, `use_ema`) leave what it takes by itself."""
_OPTIMIZERS: Final = ("adamw", "prodigy")
"""What `--optimizer` of the newer scripts takes; Prodigy keeps AdamW's two moments, and more."""
_SIDE: Final = 512
"""huggingface/diffusers 0.27.2 to 0.40.0: `--resolution` of these scripts, but 1024 of the XL."""


def example_view(document: Document, program: str) -> Document | None:
    """The view; None where the script, or a flag of it, is beyond the account.

    huggingface/diffusers 0.40.0 examples: LoRA of rank 4 with weights in the run's dtype; the whole
    denoiser in fp32 under autocast; AdamW of torch, or bitsandbytes' of 8 bits.
    """
    held = {key: at for key in _FLAGS_ALIKE if (at := document.get(key)) is not None}
    if not _SCRIPTS.search(program) or not all(key in held for key in _NEEDED):
        return None
    if any(document.get(key) for key in _ELSEWHERE) or set(_FLAGS_ALIKE) & document.unknown:
        return None
    if str(document.value("optimizer", "adamw")).lower() not in _OPTIMIZERS:
        return None
    base = held["pretrained_model_name_or_path"]
    recomputes = document.get("gradient_checkpointing")
    small = document.get("use_8bit_adam")
    told: dict[str, Any] = {
        "model_type": "lora" if "_lora" in program else "full",
        "lora_rank": document.value("rank", 4),
        "gradient_checkpointing": recomputes is not None,
        "optimizer": "torch-adamw" if small is None else "bnb-adamw8bit",
        "base_model_precision": "no_change",
    }
    if "_lora" not in program:
        del told["lora_rank"]
    if "resolution" not in held:
        told["resolution"] = _SIDE * (2 if "_sdxl" in program else 1)
    found = {**held, **{key: read_as(base, value) for key, value in told.items()}}
    return view(document, EXAMPLE, found)
