"""Plans that Unsloth's command does not run, or runs differently."""

from typing import Final

from packaging.version import Version

from tunec.compiler.ir.plan import Plan, training_data
from tunec.schemas.data_paths import is_chosen
from tunec.schemas.terms import FloatDtype
from tunec.targets.rows import has_adapter, has_images
from tunec.targets.scripts.refusals import Refusal
from tunec.targets.unsloth.packages import CONFIG, SEES, STUDIO, WRITTEN
from tunec.targets.unsloth.vision import parts_of

_AMPERE: Final = Version("8.0")


def _own_dtype(plan: Plan) -> FloatDtype:
    """The compute dtype, which follows from the device alone.

    unsloth 2026.9.8 to 2026.10.9 models/_utils.py `is_bfloat16_supported`: on NVIDIA devices bf16
    from compute capability 8.0 on.
    """
    capability = plan.devices.capability
    return "fp16" if capability is not None and Version(capability) < _AMPERE else "bf16"


def _computes_otherwise(plan: Plan) -> bool:
    return plan.precision.compute != _own_dtype(plan)


def _expands_otherwise(plan: Plan) -> bool:
    is_packed = plan.quantization.format != "none"
    return is_packed and plan.quantization.compute != plan.precision.compute


def _holds_otherwise(plan: Plan) -> bool:
    """Whether the plan's states have other dtypes than Unsloth uses."""
    states, own = plan.states, _own_dtype(plan)
    full = "bf16" if own == "bf16" else "fp32"
    trained = "fp32" if has_adapter(plan) else full
    wanted = (own if has_adapter(plan) else full, trained, trained)
    held = (states.weights, states.trainable, states.gradients)
    return held != wanted or not states.autocast or states.master_weights


_STAYS_PADDED: Final = frozenset(
    {"gemma2", "gpt_oss", "bamba", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba"}
    | {"lfm2", "lfm2_moe", "lfm2_vl", "mamba", "minicpmv4_6", "nemotron_h", "olmo_hybrid"}
    | {"qwen3_5", "qwen3_5_moe", "qwen3_next", "recurrent_gemma"}
)
"""Two families that are never packed, and those with layers that carry a state from token to token.
The latter are packed if kernels that part samples are installed and agree with a probe."""


def _is_pattern(plan: Plan) -> bool:
    targets = plan.adapter.targets
    return has_adapter(plan) and not has_images(plan) and isinstance(targets, str)


def _are_no_parts(plan: Plan) -> bool:
    return has_adapter(plan) and has_images(plan) and parts_of(plan) is None


def leaves_the_root(output: str) -> bool:
    """Whether an output path is outside of Unsloth's own directory."""
    return output.startswith(("/", "~")) or ".." in output.split("/")


REFUSALS: Final = (
    Refusal(
        ("model.family",),
        f"files are written for unsloth {WRITTEN} and later; earlier ones are only read",
        lambda _: True,
        f"unsloth {WRITTEN} unsloth_cli/commands/train.py",
        f"ask for unsloth@{WRITTEN} or later",
        until=WRITTEN,
    ),
    Refusal(
        ("schedule.warmup_steps",),
        "its warm-up is in steps, and how many steps a share makes is not known",
        lambda plan: plan.schedule.warmup_steps is None,
        f"{CONFIG} `TrainingConfig`: warmup_steps",
        "give steps: `--set train.warmup=5`; or `data.samples`, and where samples are packed "
        "`data.lengths`, of which the steps follow",
    ),
    Refusal(
        ("data.train",),
        "its command loads the split `train` of one data set in its own configuration",
        lambda plan: any(map(is_chosen, training_data(plan))),
        f"{STUDIO} `load_and_format_dataset`",
        "write that part to a file of its own, or compile to trl",
    ),
    Refusal(
        ("data.images",),
        f"before {SEES} its command loads a model that sees as one of text",
        has_images,
        f"unsloth {SEES} unsloth_cli/commands/train.py `train`: is_dataset_image",
        f"ask for unsloth@{SEES} or later",
        until=SEES,
    ),
    Refusal(
        ("devices.vendor",),
        "it runs on no such device",
        lambda plan: plan.devices.vendor == "intel",
        "unsloth 2026.9.8 to 2026.10.9 device_type.py `get_device_type`: CUDA, ROCm, XPU and NPU",
        "compile to trl",
    ),
    Refusal(
        ("precision.compute", "devices.capability"),
        "it computes in bf16 where the device has it, else in fp16, and has no key for it",
        _computes_otherwise,
        f"{STUDIO} `_train_worker`: bf16, fp16",
        "leave precision to tunec",
    ),
    Refusal(
        ("quantization.compute", "precision.compute"),
        "it expands 4-bit weights into the dtype of the products",
        _expands_otherwise,
        "unsloth 2026.9.8 to 2026.10.9 models/llama.py `from_pretrained`: bnb_4bit_compute_dtype",
        "leave quantization.compute to tunec",
    ),
    Refusal(
        ("states.weights", "states.trainable", "states.gradients", "states.autocast"),
        "it trains adapters in fp32 and a model in full in bf16, under autocast, and has no key "
        "for it",
        _holds_otherwise,
        "unsloth_zoo 2026.9.7 to 2026.10.9 training_utils.py `prepare_model_for_training`",
        "leave the states to tunec",
    ),
    Refusal(
        ("data.packing", "model.family"),
        "it leaves samples of this family unpacked, or packs them only where it finds kernels that "
        "keep a state apart: a warning in its log says which",
        lambda plan: plan.data.packing and plan.model.family in _STAYS_PADDED,
        "unsloth 2026.9.8 to 2026.10.9 unsloth/trainer.py `PADDING_FREE_BLOCKLIST`, "
        "`_is_hybrid_linear_attention_model`: packing=True ignored",
        "set data.packing to false, or compile to trl",
    ),
    Refusal(
        ("adapter.targets",),
        "it takes names of layers, and no regular expression",
        _is_pattern,
        "unsloth 2026.9.8 to 2026.10.9 unsloth_cli/config.py `model_kwargs`",
        "name the layers in `targets`",
    ),
    Refusal(
        ("adapter.targets", "data.images"),
        "beside images it adapts the attention of the language model, its feed-forward, or both",
        _are_no_parts,
        "unsloth 2026.10.9 unsloth_cli/config.py `model_kwargs`; "
        "studio/backend/core/training/trainer.py `prepare_model_for_training`",
        "name in `targets` the layers of its attention (q_proj, k_proj, v_proj, o_proj), of its "
        "feed-forward (gate_proj, up_proj, down_proj), or all seven",
    ),
    Refusal(
        ("runtime.output",),
        "it saves below its own directory of outputs, and refuses every other place",
        lambda plan: leaves_the_root(plan.runtime.output),
        "unsloth 2026.9.8 to 2026.10.9 studio/backend/utils/paths/storage_roots.py "
        "`resolve_under_root`",
        "give a relative path, and set UNSLOTH_STUDIO_HOME where the directory is to be elsewhere",
    ),
)
