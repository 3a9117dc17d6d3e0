"""SimpleTuner's flags as its files and command lines spell them, and its data sets."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.training_loop import number_of
from tunec.compiler.lints.rule import keys
from tunec.compiler.lints.views import view
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
    """Whether a document of SimpleTuner's says its flags by variables."""
    names = (*VARIABLES, MORE)
    return document.format in ("shell", "env") and any(name in document.found for name in names)


@cached()
def variables_of(flag: str) -> tuple[str, ...]:
    """The variables that become a flag; none where only `TRAINER_EXTRA_ARGS` can say it."""
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
            flags[name] = _worth(at, True if value is None else value)
        elif name:
            flags[name] = _worth(at, text)
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
    found = {flag: _worth(at, typed(str(at.value))) for flag, at in told.items()}
    unknown = {VARIABLES[name] for name in document.unknown if name in VARIABLES}
    return replace(view(document, document.kind, found), unknown=frozenset(unknown))


def _of_variables(document: Document) -> Iterator[tuple[str, Place]]:
    for name, flag in VARIABLES.items():
        at = document.get(name)
        if at is not None and str(at.value).strip().lower() not in ("", "false"):
            yield flag, at


def _worth(at: Place, value: Any) -> Place:
    return Place(at.document, at.path, replace(at.node, value=value))


class DataSet(Struct, frozen=True):
    """One entry of the list."""

    document: Document
    position: str
    """`[0]`: its key in the document."""

    def place(self, key: str) -> Place | None:
        """Where a key of the entry is written."""
        return self.document.get(f"{self.position}.{key}")

    def value(self, key: str, otherwise: Any = None) -> Any:
        """What the entry says for a key."""
        return self.document.value(f"{self.position}.{key}", otherwise)

    @property
    def kind(self) -> str:
        """Its `dataset_type`; pictures where nobody says it."""
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
    """Where a flag is written, under any of its spellings; None also where it is null."""
    names = (flag, f"--{flag}", *variables_of(flag))
    found = (*(document.get(name) for name in names), extra(document).get(flag))
    return next((at for at in found if at is not None and at.value not in (None, "None", "")), None)


def flags_read(*flags: str) -> tuple[str, ...]:
    """What a rule reads that asks for flags, wherever `said` finds them."""
    names = (name for flag in flags for name in (flag, f"--{flag}", *variables_of(flag)))
    return keys("simpletuner", *names, MORE)


def word(document: Document, flag: str, otherwise: str = "") -> str:
    """The lower-case text of a flag."""
    at = said(document, flag)
    return str(at.value).strip().lower() if at is not None else otherwise


def is_on(at: Place | None) -> bool:
    """Whether a switch is turned on: SimpleTuner takes words as well as booleans."""
    return at is not None and str(at.value).strip().lower() in ("true", "1", "yes", "on")


def amount(at: Place | None) -> float | None:
    """The number of a flag, which may be written as text."""
    return number_of(at.value) if at is not None else None


def family(document: Document) -> str:
    """The model family in lower case; empty where nobody says it."""
    return word(document, "model_family")


def is_lora(document: Document) -> bool:
    """Whether adapters are trained."""
    return "lora" in word(document, "model_type", "full")


def deepspeed_of(run: LintContext, document: Document) -> Place | None:
    """What puts SimpleTuner's run on DeepSpeed: its own flag, or else accelerate's file."""
    own = said(document, "deepspeed_config")
    if own is not None:
        return None if own.value in _OFF else own
    found = run.said("accelerate", "distributed_type")
    return found if found is not None and str(found.value).upper() == "DEEPSPEED" else None
