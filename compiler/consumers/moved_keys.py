"""Keys that programs renamed, moved or removed, and what replaces them or happens without them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field

Words = Callable[[Any], Any]
"""Converts a value to that of the other key; None if the other key is then not set."""


def _same(value: Any) -> Any:
    return value


def _none(_: Any) -> Any:
    return None


def never(_: Any) -> bool:
    """False: removing the key changes training, whatever its value."""
    return False


def always(_: Any) -> bool:
    """True: training is the same without the key, whatever its value."""
    return True


class Moved(Struct, frozen=True):
    """A key of one release, and what became of it in another."""

    old: str
    """The key's dotted path."""
    source: str
    """Repository, version and symbol that show the change."""
    new: str = ""
    """The key that replaces the old one; empty if there is none."""
    words: Words = _same
    """Converts a value of the old key to one of the new key."""
    back: Words | None = None
    """Converts a value of the new key to one of the old key; None if the old key cannot express
    it."""
    is_alias: bool = False
    """Whether releases that have both read the older name as the newer one."""
    help: str = ""
    """What to write instead, if that is not just the new key."""
    changes_nothing: Callable[[Any], bool] = never
    """Whether training is the same without the key, given its value."""
    instead: str = ""
    """What happens without the key; empty if the run may be different."""
    apart: Words = _none
    """Why no other program can express a value; None if one can."""

    @property
    def is_same(self) -> bool:
        """Whether only the name changed."""
        return self.is_alias and self.words is _same


class Carry(Struct, frozen=True):
    """Keys that set no slot's value, or only together, and their equivalent in another program.

    Such as a share of the data for evaluation, or the number of checkpoints per epoch: no plan has
    these numbers, and each program has its own keys for them.
    """

    keys: tuple[str, ...]
    write: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
    """The other program's keys for the values found; empty if rows express everything; None if the
    other program does this by itself."""
    source: str
    """Repository, version and symbol that define the keys in both programs."""
    beside: tuple[str, ...] = ()
    """Keys that `write` also reads, and that set something else too."""
    slots: tuple[str, ...] = ()
    """The slots that these keys set instead of the rows."""
    since: str = "0"
    """The first release of the dialect's program that supports this."""
    apart: Callable[[Mapping[str, Any]], str] = field(default=lambda _: "")
    """What is lost of it for the keys found; empty: nothing."""
    texts: Callable[[Mapping[str, Any]], Mapping[str, str]] = field(default=lambda _: {})
    """The texts of further files that the other program's keys name, by their names."""
    is_default: bool = False
    """Whether this is what the program does without a key; `keys` only show that it is its file."""


def carried(key: str, other: str, source: str, *, unset: tuple[Any, ...] = (None,)) -> Carry:
    """A key that the other program has, under another name or the same; `unset`: no values."""

    def write(found: Mapping[str, Any]) -> Mapping[str, Any]:
        return {} if found[key] in unset else {other: found[key]}

    return Carry((key,), write, source)


def renamed(old: str, new: str, source: str) -> Moved:
    """A key that only changed its name."""
    return Moved(old, source, new, back=_same, is_alias=True)


def switched(old: str, new: str, word: Any, source: str, help: str = "") -> Moved:
    """A switch that became the value `word` of another key; if it is off, that key is not set."""
    return Moved(
        old,
        source,
        new,
        lambda value: word if value is True else None,
        lambda value: True if value == word else None,
        is_alias=True,
        help=help,
    )


def gone(
    old: str,
    source: str,
    instead: str,
    *,
    help: str = "",
    changes_nothing: Callable[[Any], bool] = always,
) -> Moved:
    """A key without a replacement; `instead` describes what happens without it."""
    return Moved(
        old,
        source,
        words=_none,
        help=help or "remove it",
        changes_nothing=changes_nothing,
        instead=instead,
    )


def gone_unless(old: str, source: str, instead: str, *same: Any) -> Moved:
    """A key without a replacement, whose removal changes training unless its value is in `same`."""
    return gone(old, source, instead, changes_nothing=one_of(*same) if same else never)


def all_gone(
    keys: Iterable[str], source: str, instead: str, changes_nothing: Callable[[Any], bool] = always
) -> Iterator[Moved]:
    """`gone` for each of several keys."""
    return (gone(key, source, instead, changes_nothing=changes_nothing) for key in keys)


def all_gone_unless(keys: Iterable[str], source: str, instead: str, *same: Any) -> Iterator[Moved]:
    """`gone_unless` for each of several keys."""
    return (gone_unless(key, source, instead, *same) for key in keys)


def only_here(old: str, source: str, why: str, *values: Any) -> Moved:
    """A key for training that no other program can do, for any value or only for `values`."""
    return Moved(old, source, apart=lambda value: why if not values or value in values else None)


def one_of(*values: Any) -> Callable[[Any], bool]:
    """A function that tells whether a value is one of these, and of the same type."""
    return lambda value: any(type(value) is type(each) and value == each for each in values)


# ── transformers ─────────────────────────────────────────────────────────────────────────────────

_ARGUMENTS: Final = "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments`"
_POST: Final = f"{_ARGUMENTS} `__post_init__`"

_TRAINER: Final = (
    renamed("evaluation_strategy", "eval_strategy", f"{_POST}: from 4.41, until 4.51"),
    renamed("no_cuda", "use_cpu", _POST),
    renamed("per_gpu_train_batch_size", "per_device_train_batch_size", f"{_ARGUMENTS}: a property"),
    renamed("per_gpu_eval_batch_size", "per_device_eval_batch_size", f"{_ARGUMENTS}: a property"),
    renamed("push_to_hub_token", "hub_token", _POST),
    renamed("push_to_hub_model_id", "hub_model_id", _POST),
    renamed("torchdynamo", "torch_compile_backend", _POST),
    *(
        renamed(name, f"accelerator_config.{name}", _POST)
        for name in ("dispatch_batches", "split_batches")
    ),
    *(
        renamed(f"fsdp_{name}", f"fsdp_config.{name}", _POST)
        for name in ("min_num_params", "transformer_layer_cls_to_wrap")
    ),
    Moved(
        "include_tokens_per_second",
        f"{_ARGUMENTS}; 5.23.0 trainer.py `log`: tokens per second are logged with the number",
        "include_num_input_tokens_seen",
        lambda value: value or None,
    ),
    Moved(
        "warmup_ratio",
        f"{_ARGUMENTS} `get_warmup_steps`: gone in 5.15",
        "warmup_steps",
        lambda value: value or None,
        help="write warmup_steps: a number below 1 is a share of all steps from 5.0 on",
    ),
    switched(
        "group_by_length",
        "train_sampling_strategy",
        "group_by_length",
        f"{_ARGUMENTS}: from 5.1",
        "write train_sampling_strategy: group_by_length",
    ),
    switched("adafactor", "optim", "adafactor", _POST, "write optim: adafactor"),
    switched("include_inputs_for_metrics", "include_for_metrics", ["inputs"], _POST),
    switched("tpu_metrics_debug", "debug", "tpu_metrics_debug", _POST),
    gone(
        "overwrite_output_dir",
        _ARGUMENTS,
        "the directory is written to as it is",
        help="remove it: the directory is written to as it is",
    ),
    gone(
        "save_safetensors",
        _ARGUMENTS,
        "safetensors are always written",
        help="remove it: safetensors are always written",
    ),
    gone(
        "logging_dir",
        "transformers 5.23.0 integrations/integration_utils.py `TensorBoardCallback`",
        "the variable TENSORBOARD_LOGGING_DIR says where TensorBoard's files are",
        help="set TENSORBOARD_LOGGING_DIR instead",
    ),
    gone("past_index", _ARGUMENTS, "no state of the past is kept", changes_nothing=one_of(-1)),
    gone("use_mps_device", _ARGUMENTS, "a device of Apple's is used where there is one"),
    gone("ray_scope", _ARGUMENTS, "`ray` is set by the search itself"),
    gone("jit_mode_eval", _ARGUMENTS, "evaluation runs the model itself"),
    gone(
        "use_ipex",
        f"{_ARGUMENTS}: until 4.51",
        "torch runs on Intel's devices by itself",
        changes_nothing=one_of(False),
    ),
    gone(
        "use_legacy_prediction_loop",
        _ARGUMENTS,
        "there is one loop of evaluation",
    ),
    gone(
        "half_precision_backend",
        _POST,
        "torch's own autocast is used",
        changes_nothing=one_of("auto", "cuda_amp", "cpu_amp", ""),
    ),
    gone(
        "fp16_backend",
        _POST,
        "torch's own autocast is used",
        changes_nothing=one_of("auto", "cuda_amp", "cpu_amp", ""),
    ),
    gone("fp16_opt_level", f"{_POST}: of Apex alone", "torch's own autocast has no levels"),
    gone(
        "mp_parameters",
        _ARGUMENTS,
        "the launcher of SageMaker says it",
        changes_nothing=one_of(""),
    ),
    gone("tpu_num_cores", _ARGUMENTS, "the launcher says how many cores there are"),
    gone(
        "tp_size",
        "transformers 4.51.3 training_args.py `tp_size`",
        "the model is not split by tensors",
        changes_nothing=one_of(0, 1),
    ),
)
"""All fields that TrainingArguments lost between 4.40.2 and 5.23.0 except one: the hub's
organisation (`push_to_hub_organization`) is only a part of hub_model_id, and the other part is
unknown."""

# ── TRL ──────────────────────────────────────────────────────────────────────────────────────────

_TRL: Final = "trl 0.8.6 to 1.16.0 trainer/*_config.py"

_METHODS: Final = (
    renamed("max_seq_length", "max_length", f"{_TRL}: sft_config.py, from 0.16"),
    renamed("use_liger", "use_liger_kernel", f"{_TRL}: sft_config.py, until 0.17"),
    renamed("vllm_max_model_len", "vllm_max_model_length", f"{_TRL}: grpo_config.py"),
    Moved(
        "vllm_guided_decoding_regex",
        f"{_TRL}: grpo_config.py, rloo_config.py; until 0.27",
        "vllm_structured_outputs_regex",
        back=_same,
    ),
    Moved(
        "wandb_log_unique_prompts",
        f"{_TRL}: grpo_config.py, rloo_config.py; until 0.26",
        "log_unique_prompts",
        back=_same,
    ),
    Moved(
        "padding_value",
        f"{_TRL}: dpo_config.py; a number until 0.25, then a token",
        "pad_token",
        _none,
    ),
    Moved(
        "use_flash_attention_2",
        "huggingface/alignment-handbook v0.3.0 src/alignment/configs.py",
        "attn_implementation",
        lambda value: "flash_attention_2" if value is True else None,
    ),
    renamed("torch_dtype", "dtype", "trl 0.25.0 to 1.16.0 trainer/model_config.py"),
    renamed("preprocessing_num_workers", "dataset_num_proc", "v0.3.0 src/alignment/configs.py"),
)

# ── DeepSpeed ────────────────────────────────────────────────────────────────────────────────────

_ZERO: Final = "deepspeed 0.14.5 to 0.19.8 runtime/zero/config.py `DeepSpeedZeroConfig`"
_BLOCK: Final = "zero_optimization"


def _offload(old: str, block: str) -> Moved:
    return Moved(
        f"{_BLOCK}.{old}",
        _ZERO,
        f"{_BLOCK}.{block}.device",
        lambda value: "cpu" if value is True else None,
        is_alias=True,
        help=f"write {block}: {{device: cpu}}",
    )


_ENGINE: Final = (
    _offload("cpu_offload", "offload_optimizer"),
    _offload("cpu_offload_param", "offload_param"),
    renamed(
        f"{_BLOCK}.stage3_gather_fp16_weights_on_model_save",
        f"{_BLOCK}.stage3_gather_16bit_weights_on_model_save",
        _ZERO,
    ),
    gone(
        f"{_BLOCK}.cpu_offload_use_pin_memory",
        f"{_ZERO}: set_new_param False",
        "it is not read: pin_memory of each offload is",
        help="write pin_memory, in offload_optimizer or offload_param",
    ),
)

# ── LLaMA-Factory and Axolotl ────────────────────────────────────────────────────────────────────

_FACTORY: Final = "llamafactory 0.9.1 to 0.9.5 hparams"
_AXOLOTL: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas"

_FACTORYS: Final = (
    renamed("image_dir", "media_dir", f"{_FACTORY}/data_args.py"),
    Moved(
        "train_mm_proj_only",
        f"{_FACTORY}/finetuning_args.py: the one trains the projector, the other freezes it",
        "freeze_multi_modal_projector",
        _none,
    ),
    Moved("new_special_tokens", f"{_FACTORY}/model_args.py", "add_special_tokens", back=_same),
    Moved("dpo_beta", f"{_FACTORY}/finetuning_args.py: until 0.8", "pref_beta", back=_same),
    Moved("dpo_loss", f"{_FACTORY}/finetuning_args.py: until 0.8", "pref_loss", back=_same),
)
_AXOLOTLS: Final = (
    Moved(
        "sequence_parallel_degree",
        f"{_AXOLOTL}/config.py: until 0.12",
        "context_parallel_size",
        back=_same,
    ),
    *(
        Moved(f"relora_{name}", f"{_AXOLOTL}/peft.py", f"jagged_restart_{name}", back=_same)
        for name in ("steps", "warmup_steps", "anneal_steps")
    ),
)

MOVED: Final[Mapping[str, tuple[Moved, ...]]] = {
    "transformers": _TRAINER,
    "trl": _METHODS,
    "deepspeed": _ENGINE,
    "llamafactory": _FACTORYS,
    "axolotl": _AXOLOTLS,
    "accelerate": (),
}
"""By the package that the keys belong to."""


def moved_key(package: str, key: str) -> Moved | None:
    """What became of a package's key; None if its name is unchanged or unknown."""
    return next((each for each in MOVED[package] if each.old == key), None)


def former_name(package: str, key: str) -> Moved | None:
    """The entry of the key that became this one, if values can be converted back; else None."""
    found = (each for each in MOVED[package] if each.new == key and each.back is not None)
    return next(found, None)
