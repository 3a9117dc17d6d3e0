"""Keys of DeepSpeed's file that exclude each other."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place, also
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import dataclass

_ZERO: Final = "zero_optimization."


@dataclass(frozen=True, slots=True)
class _Pair:
    key: str
    is_asked: Callable[[Any], bool]
    other: str
    excludes: Callable[[Any], bool]
    """By the other key's effective value."""
    why: str
    mend: str


_SINCE_0_19: Final = (
    *("gradient_allreduce_op", f"{_ZERO}compute_grad_norm", "managed_gradient_accumulation"),
    "compile.",
)
"""Not in deepspeed 0.18.9; it has some of the switches of `compile`, and refuses none of them."""
_ONE_BIT: Final = ("onebitadam", "onebitlamb", "zerooneadam")


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.lower() == "sum"


_PASSES: Final = (
    ("offload_activation", "offload_parameters"),
    ("offload_activation", "offload_opt_states"),
    ("offload_parameters", "offload_opt_states"),
)

_PAIRS: Final = (
    _Pair(
        "gradient_allreduce_op",
        _is_word,
        f"{_ZERO}stage",
        lambda stage: stage == 3,
        "stage 3 averages gradients as it scatters them",
        "write gradient_allreduce_op: mean, or use stage 2",
    ),
    *(
        _Pair(
            "gradient_allreduce_op",
            _is_word,
            other,
            is_asked,
            f"{name} averages gradients itself",
            "write gradient_allreduce_op: mean",
        )
        for name, other, is_asked in (
            ("ZenFlow", f"{_ZERO}zenflow", lambda block: isinstance(block, dict)),
            ("DeepCompile", "compile.deepcompile", lambda value: value is True),
        )
    ),
    _Pair(
        f"{_ZERO}compute_grad_norm",
        lambda value: value is False,
        f"{_ZERO}zenflow",
        lambda block: isinstance(block, dict),
        "ZenFlow asks for the norm",
        "remove one of them",
    ),
    _Pair(
        f"{_ZERO}compute_grad_norm",
        lambda value: value is False,
        f"{_ZERO}stage",
        lambda stage: stage in (0, 3),
        "only stages 1 and 2 can do without the norm",
        "remove it, or use stage 1 or 2",
    ),
    _Pair(
        f"{_ZERO}compute_grad_norm",
        lambda value: value is False,
        "gradient_clipping",
        lambda norm: type(norm) in (int, float) and norm > 0,
        "gradients are clipped by their norm",
        "remove compute_grad_norm, or write gradient_clipping: 0",
    ),
    _Pair(
        f"{_ZERO}compute_grad_norm",
        lambda value: value is False,
        f"{_ZERO}offload_optimizer.device",
        lambda device: device in ("cpu", "nvme"),
        "an optimizer on the host computes the norm",
        "remove compute_grad_norm, or the offload",
    ),
    *(
        _Pair(
            f"compile.{one}",
            lambda value: value is True,
            f"compile.{other}",
            lambda value: value is True,
            "each of DeepCompile's passes plans the memory that it frees by itself",
            "turn one of them off",
        )
        for one, other in _PASSES
    ),
    _Pair(
        "compile.offload_opt_states",
        lambda value: value is True,
        f"{_ZERO}offload_optimizer.device",
        lambda device: device in ("cpu", "nvme"),
        "ZeRO keeps the states on the host already",
        "turn one of them off",
    ),
    _Pair(
        "managed_gradient_accumulation",
        lambda value: value is False,
        "compile.deepcompile",
        lambda value: value is True,
        "DeepCompile counts the micro batches itself",
        "turn one of them off",
    ),
    _Pair(
        "optimizer.type",
        lambda value: isinstance(value, str) and value.lower() in _ONE_BIT,
        f"{_ZERO}stage",
        lambda stage: stage in (1, 2, 3),
        "they exchange gradients themselves, in one bit; releases from 0.19 on no longer have them",
        "write AdamW, or use stage 0",
    ),
    _Pair(
        "optimizer.type",
        lambda value: isinstance(value, str) and value.lower() in ("lamb", "onebitlamb"),
        "fp16.loss_scale",
        lambda scale: type(scale) in (int, float) and scale > 0,
        "DeepSpeed's Lamb needs dynamic loss scaling",
        "write loss_scale: 0",
    ),
)


@rule(
    "keys-refused-together",
    "error",
    "init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.19.8 runtime/config.py `_do_error_check`: gradient_allreduce_op='sum' "
            "is not "
            "supported with ZeRO stage 3; runtime/zero/config.py `compute_grad_norm_valid`; "
            "runtime/engine.py `_assert_valid_mixed_precision_config`; runtime/zero/"
            "stage_1_and_2.py `__init__`: compute_grad_norm=false requires gradient_clipping=0, "
            "does not support optimizer offload; compile/init_z3.py `init_z3`: cannot be combined; "
            "runtime/engine.py `_do_sanity_check`: managed_gradient_accumulation"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_do_optimizer_sanity_check`: DeepSpeed "
            "lamb optimizer requires dynamic loss scaling; 0.14.5 to 0.18.9 "
            "`_configure_basic_optimizer`: 1bit-Adam is not compatible with ZeRO"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config_utils.py `_process_deprecated_field`: "
            "Cannot provide deprecated parameter and replacing parameter together; 0.14.5 to "
            "0.18.9 runtime/config.py: One or more batch related parameters were found"
        ),
    ),
)
def keys_refused_together(run: LintContext) -> Iterator[Finding]:
    """Keys of ds_config.json that DeepSpeed takes one by one and refuses together."""
    for pair in _PAIRS:
        for document in run.of("deepspeed"):
            place = document.get(pair.key)
            if place is None or not pair.is_asked(place.value):
                continue
            if _is_asleep(document, pair.key) or _is_to_come(run, pair.key):
                continue
            other = run.effective("deepspeed", pair.other)
            if other.known and pair.excludes(other.value):
                yield _finding(pair, place, other.value, other.place)
    yield from _dtype(run)
    for document in run.of("deepspeed"):
        yield from _renamed(document)
        yield from _elastic(run, document)
        yield from _lamb(run, document)


def _is_asleep(document: Document, key: str) -> bool:
    """Whether it belongs to DeepCompile, which is off, or is not that of stage 3."""
    is_stage_3 = document.value(f"{_ZERO}stage") not in (1, 2)
    is_on = document.value("compile.deepcompile") is True
    return key.startswith("compile.") and not (is_on and is_stage_3)


def _is_to_come(run: LintContext, key: str) -> bool:
    """Whether the release that somebody names is from before the key, or before it is checked."""
    return key.startswith(_SINCE_0_19) and run.runs("deepspeed<0.19") is True


def _finding(pair: _Pair, place: Place, value: Any, other: Place | None) -> Finding:
    return Finding(
        f"{pair.key} {place.value} with {pair.other}{_said(value)} is refused",
        (place.label("refused"), *also(other)),
        (pair.why,),
        pair.mend,
    )


def _said(value: Any) -> str:
    return "" if isinstance(value, dict) else f" {value}"


def _lamb(run: LintContext, document: Document) -> Iterator[Finding]:
    """deepspeed 0.14.5 to 0.16.9 runtime/config.py `get_loss_scale`: 1.0 under bf16."""
    place, brain = document.get("optimizer.type"), run.effective("deepspeed", "bf16.enabled")
    if place is None or brain.value is not True or not run.runs("deepspeed<0.17"):
        return
    if isinstance(place.value, str) and place.value.lower() in ("lamb", "onebitlamb"):
        yield Finding(
            f"optimizer.type {place.value} with bf16 is refused",
            (
                place.label("refused"),
                *also(brain.place),
            ),
            ("it needs dynamic loss scaling, and bf16 has a fixed scale of 1",),
            "use fp16, or another optimizer",
        )


_NEWER: Final = (
    ("cpu_offload", ("offload_optimizer",)),
    ("cpu_offload_param", ("offload_param",)),
    (
        "stage3_gather_fp16_weights_on_model_save",
        ("stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save"),
    ),
)
"""Older names in `zero_optimization`, and those that took their place."""


def _renamed(document: Document) -> Iterator[Finding]:
    for older, names in _NEWER:
        old = document.get(_ZERO + older)
        new = next((at for name in names if (at := document.get(_ZERO + name)) is not None), None)
        if old is not None and new is not None and "auto" not in (old.value, new.value):
            yield Finding(
                f"{older} beside {new.path.rpartition('.')[2]} is refused, whatever it says",
                (old.key_label("the older name"), new.key_label("", primary=False)),
                ("the newer one takes the place of the older one",),
                f"remove {older}",
            )


_BATCHES: Final = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
)
_ELASTIC: Final = ("max_train_batch_size", "micro_batch_sizes")


def _elastic(run: LintContext, document: Document) -> Iterator[Finding]:
    """Elastic training chooses the batch; 0.19 has none, which key-of-another-release tells."""
    place = document.get("elasticity.enabled")
    if place is None or place.value is not True or run.runs("deepspeed>=0.19"):
        return
    for key in _ELASTIC:
        if document.get(f"elasticity.{key}") is None:
            yield Finding(
                f"elasticity is enabled without {key}",
                (place.label("refused"),),
                ("elastic training derives the batch sizes from it",),
                f"write elasticity.{key}",
            )
    batch = next((at for key in _BATCHES if (at := document.get(key)) is not None), None)
    if batch is not None and not document.value("elasticity.ignore_non_elastic_batch_info", False):
        yield Finding(
            f"{batch.path} beside elasticity is refused",
            (batch.key_label("refused"), place.label("", primary=False)),
            ("elastic training chooses the batch sizes itself, by max_train_batch_size",),
            "remove the batch sizes, or write elasticity.ignore_non_elastic_batch_info: true",
        )


_NAMES: Final = {
    "fp16": ("fp16", "float16", "half", "torch.float16"),
    "bf16": ("bf16", "bfloat16", "torch.bfloat16"),
}


def _dtype(run: LintContext) -> Iterator[Finding]:
    """`data_types.param_dtype` has to be what fp16 or bf16 makes of the model."""
    place = run.said("deepspeed", "data_types.param_dtype")
    if place is None or not isinstance(place.value, str) or run.runs("deepspeed<0.19"):
        return
    for mode, names in _NAMES.items():
        enabled = run.effective("deepspeed", f"{mode}.enabled")
        if enabled.value is True and place.value not in names:
            yield Finding(
                f"data_types.param_dtype {place.value} with {mode} enabled is refused",
                (
                    place.label("refused"),
                    *also(enabled.place),
                ),
                (f"{mode} says in which dtype the model is kept",),
                "remove param_dtype",
            )
