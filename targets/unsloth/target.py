"""The unsloth target: one YAML for `unsloth train`, which does SFT on one device."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.target import Cannot, Dialect, File, Json, Target
from tunec.schemas.spec import Spec
from tunec.targets.huggingface import counting as trainer
from tunec.targets.huggingface.packages import PEFT, PEFT_RELEASES, TRANSFORMERS
from tunec.targets.huggingface.target import CANNOT
from tunec.targets.huggingface.text_layers import SAME_NAMES, layer_names
from tunec.targets.read_only import schema_of
from tunec.targets.rows import has_adapter
from tunec.targets.scripts.refusals import refusing
from tunec.targets.trainers import (
    other_releases,
    reading_formats,
    supervised,
    taking_the_tokenizers_template,
)
from tunec.targets.unsloth.adapter import ADAPTER, QUANTIZATION
from tunec.targets.unsloth.migration import ANSWERS, CARRIES, LEAVES
from tunec.targets.unsloth.model import DATA, MODEL
from tunec.targets.unsloth.names import copies
from tunec.targets.unsloth.packages import (
    PACKAGE,
    RELEASES,
    SUPPORTED,
    TRAINER,
    companions,
    installed_releases,
    ranges,
)
from tunec.targets.unsloth.refusals import REFUSALS
from tunec.targets.unsloth.training import BATCH, CHECKPOINTING, OPTIMIZER, RUNTIME, SCHEDULE
from tunec.targets.unsloth.vision import VISION

_LOSS: Final = (
    "it computes the loss in pieces, by the memory that is free; the account holds all logits at "
    "once (unsloth_zoo 2026.10.9 fused_losses/cross_entropy_loss.py `unsloth_fused_ce_loss`)"
)
_KERNELS: Final = (
    "its kernels for norms, positions, feed-forward and adapters are not followed (unsloth "
    "2026.9.8 to 2026.10.9 kernels)"
)
_BUFFERS: Final = (
    "beside what waits on the host, the last layer's input and one or two buffers of that size "
    "stay on the device (unsloth_zoo 2026.10.9 gradient_checkpointing.py "
    "`UnslothCheckpointFunction`)"
)
_NORMS: Final = (
    "norms are trained in fp32, the rest in bf16 (unsloth_zoo 2026.9.7 to 2026.10.9 "
    "training_utils.py `prepare_model_for_training`)"
)


def unfollowed(plan: Plan) -> Iterator[Diagnostic]:
    """Notes that the account describes the Trainer, without Unsloth's replacements of its parts."""
    on_host = plan.activation_checkpointing.offload
    in_bf16 = not has_adapter(plan) and plan.states.trainable == "bf16"
    yield Diagnostic(
        "account-of-the-plain-trainer",
        "note",
        "the memory is counted for transformers' Trainer without what unsloth puts in its place",
        notes=(
            _LOSS,
            _KERNELS,
            *((_BUFFERS,) if on_host else ()),
            *((_NORMS,) if in_bf16 else ()),
        ),
    )


_SECTIONS: Final[Mapping[str, frozenset[str]]] = {
    "data": frozenset({"local_dataset", "format_type"}),
    "training": frozenset({"training_type", "load_in_4bit", "max_seq_length", "random_seed"}),
    "lora": frozenset({"lora_r", "lora_alpha", "target_modules", "vision_all_linear"}),
    "logging": frozenset({"enable_wandb", "enable_tensorboard", "tensorboard_dir"}),
}
"""Its sections, each with keys that no other program has in a section of that name."""


def _is_unsloth(document: Json) -> bool:
    """Whether a document has a section with a typical key."""
    if not isinstance(document, dict) or not {*document} <= {"model", *_SECTIONS}:
        return False
    if isinstance(document.get("model"), dict):
        return False  # its model is a name; scripts of many have a section there
    return any(
        isinstance(document.get(name), dict) and keys & {*document[name]}
        for name, keys in _SECTIONS.items()
    )


CONFIG: Final = File(
    name="unsloth.yaml",
    format="yaml",
    entries=(
        *MODEL,
        *DATA,
        ANSWERS.row,
        *ADAPTER,
        *VISION,
        *QUANTIZATION,
        *CHECKPOINTING,
        *BATCH,
        *OPTIMIZER,
        *SCHEDULE,
        *RUNTIME,
    ),
    recognise=_is_unsloth,
    schema=schema_of(PACKAGE, RELEASES, PACKAGE),
    check=other_releases(PACKAGE, ranges, installed_releases),
    leaves=LEAVES,
    carries=CARRIES,
    reads_powers=True,
    takes=ANSWERS.takes,
    defaults=ANSWERS.does,
)


# ── what no key says ─────────────────────────────────────────────────────────────────────────────

_ONE: Final = "unsloth train runs one process on one device"
_STATES: Final = "it decides by the device and the method"
_CANNOT: Final = {
    **CANNOT,
    **supervised("unsloth train"),
    "model.kind": Cannot(
        "unsloth train trains models that write text", True, ("causal-lm", "vision-language")
    ),
    "loss.path": Cannot("it computes the loss in pieces of its own", True, ("full",)),
    "attention.implementation": Cannot(
        "it takes flash-attn where it is installed, else xformers or torch's own",
        True,
        ("sdpa", "flash_attention_2"),
    ),
    **taking_the_tokenizers_template("its file has no key for a template"),
    "data.images": Cannot("the data has them, and it looks for them there"),
    **reading_formats(
        "it knows records by their columns; others it would guess at", "sharegpt", "alpaca"
    ),
    "adapter.targets": Cannot("parts of the language model say it"),
    "parallel.engine": Cannot(_ONE, True, ("none",)),
    "parallel.sequence": Cannot(_ONE, True, (1,)),
    "precision.loss_scaling": Cannot("the Trainer scales the loss with fp16"),
    **{f"states.{name}": Cannot(_STATES) for name in ("weights", "autocast")},
    "batch.evaluation": Cannot("it evaluates nothing"),
    "schedule.warmup_share": Cannot("it is given the steps of a warm-up"),
}
_REQUIRES: Final[Mapping[str, Any]] = {
    "parallel.engine": "none",
    "precision.tf32": False,
    "optimizer.name": "adamw_8bit",
    "optimizer.kernel": "bitsandbytes",
    "optimizer.beta1": 0.9,
    "optimizer.beta2": 0.999,
    "optimizer.epsilon": 1e-8,
    "schedule.log_steps": 1,
    "schedule.keep_checkpoints": None,
    "runtime.dataloader_workers": 0,
    "runtime.dataloader_pin_memory": True,
}
_OF_TEXT: Final[Mapping[str, Any]] = {
    "activation_checkpointing.reentrant": True,
    "optimizer.max_grad_norm": 1.0,
    "schedule.kind": "linear",
}
_OF_IMAGES: Final[Mapping[str, Any]] = {"optimizer.max_grad_norm": 0.3, "schedule.kind": "cosine"}


_WARMUP: Final = 5
"""The default number of warmup steps."""


def _needs(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Its defaults for samples with images, or for text, and a warmup in steps.

    Samples of a vision-language model may have images that the spec does not mention. A default
    share of warmup is zero if the length is unknown.
    """
    data = draft.groups.get("data")
    if data is None:
        return {}
    defaults, families = (_OF_IMAGES, _OTHER_LAYERS) if data.images else (_OF_TEXT, SAME_NAMES)
    usual = {**defaults, **layer_names(spec, draft, families)}
    is_open = spec.train.steps is None and (spec.data.packing or spec.data.samples is None)
    if is_open and spec.data.lengths is None and "warmup" not in spec.train.model_fields_set:
        return {**usual, "schedule.warmup_steps": _WARMUP}
    return usual


_OTHER_LAYERS: Final = ("gemma4",)
"""Families with layers that it leaves out beside images: transformers 5.5.0 to 5.23.0
models/gemma4/modeling_gemma4.py `Gemma4TextDecoderLayer` has per_layer_input_gate and
per_layer_projection beside attention and feed-forward."""
_refusals: Final = refusing(PACKAGE, REFUSALS)


def _check(plan: Plan, version: Version) -> Iterator[Diagnostic]:
    yield from _refusals(plan, version)
    yield from copies(plan, version)
    yield from unfollowed(plan)


def entry(_: Plan, __: Dialect) -> tuple[str, ...]:
    """The module that `unsloth train` runs.

    unsloth 2026.9.8 to 2026.10.9 unsloth_cli/__main__.py.
    """
    return ("unsloth_cli.__main__", "train", "--config", f"{PACKAGE}/{CONFIG.name}")


TARGET: Final = Target(
    name=PACKAGE,
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=(CONFIG,),
    cannot=_CANNOT,
    requires=_REQUIRES,
    needs=_needs,
    check=_check,
    beside={TRAINER: TRANSFORMERS, PEFT: PEFT_RELEASES},
    companions=companions,
    entry=entry,
    run_by="trl",
    counting=trainer.counting,
    verify="tunec.targets.unsloth.verify",
)
"""The target for `unsloth train`."""
