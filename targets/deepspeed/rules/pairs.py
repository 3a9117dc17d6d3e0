"""Rules about keys of DeepSpeed's file that exclude each other."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, also
from tunec.compiler.lints.facts.sharding import zero_keys
from tunec.compiler.lints.rows import Row, found, reads_of
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace

_ZERO: Final = "deepspeed:zero_optimization"
_STAGE: Final = f"{_ZERO}.stage"
_OFFLOADED: Final = f"{_ZERO}.offload_optimizer.device=cpu|nvme"
_COMPILED: Final = "deepspeed:compile.deepcompile=true"


def _pair(when: str, other: str, why: str, help: str, since: str = "deepspeed>=0.19") -> Row:
    """A row for two settings that DeepSpeed refuses together.

    A release before `since` does not have the key, or does not check it.
    """
    message = "{0.path} {0.value} with {1.path} {1.value} is refused"
    severity: Severity = "error"  # also where nobody names the release
    return Row(
        when, message, "refused", why, help, effective=(other,), since=since, severity=severity
    )


def _block(when: str, block: str, why: str, help: str) -> Row:
    return replace(
        _pair(when, f"{block}?", why, help), message="{0.path} {0.value} with {1.path} is refused"
    )


_SUM: Final = "deepspeed:gradient_allreduce_op~=sum"
_NO_NORM: Final = f"{_ZERO}.compute_grad_norm=false"
_ONE_BIT: Final = "deepspeed:optimizer.type~=onebitadam|onebitlamb|zerooneadam"
_LAMB: Final = "deepspeed:optimizer.type~=lamb|onebitlamb"
_MEAN: Final = "write gradient_allreduce_op: mean"
_ONE_OFF: Final = "turn one of them off"

_PAIRS: Final = (
    _pair(
        _SUM,
        f"{_STAGE}=3",
        "stage 3 averages gradients as it scatters them",
        f"{_MEAN}, or use stage 2",
    ),
    _block(_SUM, f"{_ZERO}.zenflow", "ZenFlow averages gradients itself", _MEAN),
    _pair(_SUM, _COMPILED, "DeepCompile averages gradients itself", _MEAN),
    _block(_NO_NORM, f"{_ZERO}.zenflow", "ZenFlow needs the norm", "remove one of them"),
    _pair(
        _NO_NORM,
        f"{_STAGE}=0|3",
        "only stages 1 and 2 can do without the norm",
        "remove it, or use stage 1 or 2",
    ),
    _pair(
        _NO_NORM,
        "deepspeed:gradient_clipping>0",
        "gradients are clipped by their norm",
        "remove compute_grad_norm, or write gradient_clipping: 0",
    ),
    _pair(
        _NO_NORM,
        _OFFLOADED,
        "an optimizer on the host computes the norm",
        "remove compute_grad_norm, or the offload",
    ),
    _pair(
        "deepspeed:managed_gradient_accumulation=false",
        _COMPILED,
        "DeepCompile counts the micro batches itself",
        _ONE_OFF,
    ),
    _pair(
        _ONE_BIT,
        f"{_STAGE}=1|2|3",
        "they exchange gradients themselves, in one bit; releases from 0.19 on no longer have them",
        "write AdamW, or use stage 0",
        since="",
    ),
    _pair(
        _LAMB,
        "deepspeed:fp16.loss_scale>0",
        "DeepSpeed's Lamb needs dynamic loss scaling",
        "write loss_scale: 0",
        since="",
    ),
)
_PASSES: Final = (
    *(
        _pair(
            f"deepspeed:compile.{one}=true",
            f"deepspeed:compile.{other}=true",
            "each of DeepCompile's passes plans the memory that it frees by itself",
            _ONE_OFF,
        )
        for one, other in (
            ("offload_activation", "offload_parameters"),
            ("offload_activation", "offload_opt_states"),
            ("offload_parameters", "offload_opt_states"),
        )
    ),
    _pair(
        "deepspeed:compile.offload_opt_states=true",
        _OFFLOADED,
        "ZeRO keeps the states on the host already",
        _ONE_OFF,
    ),
)
_LAMB_IN_BF16: Final = Row(
    _LAMB,
    "optimizer.type {0.value} with bf16 is refused",
    label="refused",
    why="it needs dynamic loss scaling, and bf16 has a fixed scale of 1",
    help="use fp16, or another optimizer",
    effective=("deepspeed:bf16.enabled=true",),
)
"""Under bf16 the loss scale is 1.0: deepspeed 0.14.5 to 0.16.9 runtime/config.py
`get_loss_scale`."""


_NEWER: Final = (
    ("cpu_offload", ("offload_optimizer",)),
    ("cpu_offload_param", ("offload_param",)),
    (
        "stage3_gather_fp16_weights_on_model_save",
        ("stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save"),
    ),
)
"""Older names in `zero_optimization`, and the keys that replaced them."""


@rule(
    "error",
    "init",
    consumers=("deepspeed",),
    reads=(
        *reads_of((*_PAIRS, *_PASSES)),
        *keys("deepspeed", "data_types.param_dtype", "elasticity.enabled"),
        *zero_keys(*(older for older, _ in _NEWER)),
    ),
)
def keys_refused_together(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed accepts each of these keys of ds_config.json alone, but refuses them together."""
    yield from found(_PAIRS, run)
    if _runs_passes(run):
        yield from found(_PASSES, run)
    if run.runs("deepspeed<0.17"):
        yield from found((_LAMB_IN_BF16,), run)
    yield from _dtype(run)
    for document in run.of("deepspeed"):
        yield from _renamed(document)
        yield from _elastic(run, document)


def _runs_passes(run: LintContext) -> bool:
    """Whether DeepCompile is on and runs its passes for stage 3."""
    is_on = run.effective("deepspeed", "compile.deepcompile").value is True
    return is_on and run.effective("deepspeed", "zero_optimization.stage").value not in (1, 2)


def _renamed(document: Document) -> Iterator[Finding]:
    for older, names in _NEWER:
        old = document.get(f"zero_optimization.{older}")
        new = next(
            (at for name in names if (at := document.get(f"zero_optimization.{name}")) is not None),
            None,
        )
        if old is not None and new is not None and "auto" not in (old.value, new.value):
            yield Finding(
                f"{older} beside {new.path.rpartition('.')[2]} is refused, whatever its value",
                (old.key_label("the older name"), new.key_label("", primary=False)),
                ("the newer one takes the place of the older one",),
                f"remove {older}",
            )


_BATCHES: Final = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
)
_ELASTIC: Final = ("max_train_batch_size", "micro_batch_sizes")


def _elastic(run: LintContext, document: Document) -> Iterator[Finding]:
    """Elastic training lacks a key, or a batch size stands beside it although it chooses one.

    0.19 has no elastic training, which key-of-another-release reports.
    """
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
    """`data_types.param_dtype` differs from the dtype that fp16 or bf16 gives the model."""
    place = run.said("deepspeed", "data_types.param_dtype")
    if place is None or not isinstance(place.value, str) or run.runs("deepspeed<0.19"):
        return
    for mode, names in _NAMES.items():
        enabled = run.effective("deepspeed", f"{mode}.enabled")
        if enabled.value is True and place.value not in names:
            yield Finding(
                f"data_types.param_dtype {place.value} with {mode} enabled is refused",
                (place.label("refused"), *also(enabled.place)),
                (f"{mode} says in which dtype the model is kept",),
                "remove param_dtype",
            )
