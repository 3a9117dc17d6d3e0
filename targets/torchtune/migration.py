"""Keys of torchtune without a slot: what other programs do instead."""

from typing import Any, Final

from tunec.compiler.consumers.moved_keys import all_gone, gone, never, one_of
from tunec.targets.torchtune.packages import SOURCE

_RECIPES: Final = f"{SOURCE} recipes/*.py"
_OFF: Final = one_of(False, 0, None, "", [])
_PROFILER: Final = (
    *("_component_", "enabled", "output_dir", "cpu", "cuda", "xpu", "profile_memory", "with_stack"),
    *("record_shapes", "with_flops", "wait_steps", "warmup_steps", "active_steps", "num_cycles"),
)
_TOKENIZER: Final = ("path", "merges_file", "vocab_path", "merges_path", "special_tokens_path")
_STATES: Final = ("recipe", "adapter")
_HARMLESS: Final = (
    (
        "weights and tokenizer are found in the model's own folder",
        (
            *(f"checkpointer.{key}" for key in ("_component_", "checkpoint_files", "model_type")),
            *(
                f"checkpointer.checkpoint_files.{key}"
                for key in ("filename_format", "max_filename")
            ),
            *("checkpointer.safe_serialization", "tokenizer._component_"),
            *(f"ref_checkpointer.{key}" for key in ("_component_", "checkpoint_files")),
            *("ref_checkpointer.model_type", "ref_checkpointer.output_dir"),
            *(f"tokenizer.{key}" for key in _TOKENIZER),
        ),
    ),
    ("checkpoints lie in the run's folder", ("checkpointer.output_dir",)),
    (
        "the new run writes its own logs",
        (
            *(
                f"metric_logger.{key}"
                for key in ("log_dir", "project", "group", "name", "filename")
            ),
            *("log_level", "log_peak_memory_stats"),
        ),
    ),
    ("nothing is profiled", tuple(f"profiler.{key}" for key in _PROFILER)),
    ("the device is the new program's", ("device", "low_cpu_ram")),
    ("layers are sharded as the new program does", ("custom_sharded_layers",)),
    ("no tensor is split", ("tensor_parallel_plan._component_",)),
    ("no recipe asks for it", ("fsdp.cpu_offload",)),
    ("checkpoints are written before training continues", ("enable_async_checkpointing",)),
)
_OTHER: Final = (
    ("the run begins anew", ("resume_from_checkpoint", "should_load_recipe_state")),
    (
        "the run begins anew",
        tuple(f"{name}checkpointer.{key}_checkpoint" for name in ("", "ref_") for key in _STATES),
    ),
    ("adapters alone are saved, and merged by hand", ("save_adapter_weights_only",)),
    ("the model is not compiled, so steps take longer", ("compile",)),
    (
        "gradients of all layers wait for the optimizer's step, so more memory is needed",
        ("optimizer_in_bwd",),
    ),
    ("the tokenizer's own template makes prompts", ("tokenizer.prompt_template",)),
    ("the seed is the new program's own", ("seed",)),
    ("samples are as long as the new program has them", ("tokenizer.max_seq_len",)),
    ("nothing is checked for being the same each time", ("cudnn_deterministic_mode",)),
)


def _is_in_full(value: Any) -> bool:
    """Whether a builder trains the whole model, whose family its weights show."""
    return not str(value).rpartition(".")[2].startswith(("lora_", "qlora_"))


LEAVES: Final = (
    gone(
        "ref_checkpointer.checkpoint_dir",
        f"{SOURCE} recipes/full_dpo_distributed.py",
        "the reference is a copy of the model itself",
        changes_nothing=never,
    ),
    gone(
        "model._component_",
        f"{SOURCE} torchtune/models",
        "weights tell their family",
        changes_nothing=_is_in_full,
    ),
    *(each for why, names in _HARMLESS for each in all_gone(names, _RECIPES, why)),
    *(each for why, names in _OTHER for each in all_gone(names, _RECIPES, why, _OFF)),
    gone("shuffle", _RECIPES, "samples are mixed in each epoch", changes_nothing=one_of(True)),
)
"""What is done without each key."""
