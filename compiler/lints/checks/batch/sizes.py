"""Batch sizes that DeepSpeed cannot work with."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label, Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.facts.training_loop import is_whole, trainer_batch
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, rule


@rule(
    "batch-not-divisible",
    "error",
    "init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `_set_batch_related_parameters`: "
            "micro_batch = train_batch // world_size // grad_acc; `_batch_assertion`"
        ),
        "modelscope/ms-swift#4710",
    ),
    reads=("deepspeed:train_batch_size",),
)
def batch_not_divisible(run: LintContext) -> Iterator[Finding]:
    """train_batch_size alone cannot be shared out evenly among the processes."""
    total = run.effective("deepspeed", "train_batch_size")
    steps = run.effective("deepspeed", "gradient_accumulation_steps")
    if not total.is_written or not is_whole(total.value) or total.value < 1 or total.place is None:
        return
    if run.said("deepspeed", "train_micro_batch_size_per_gpu") or run.of("trainer"):
        return
    accumulation = 1 if steps.value is None else steps.value
    world = run.data_parallel
    if world is None or not is_whole(accumulation) or accumulation < 1:
        return
    if total.value % (world * accumulation):
        yield _divisible_finding(total.place, total.value, world, accumulation)


def _divisible_finding(place: Place, total: int, world: int, accumulation: int) -> Finding:
    each = world * accumulation
    shared = f"{world} processes" + (f" x {accumulation} micro batches" if accumulation > 1 else "")
    micro = total // each
    near = micro * each or each
    came = f"{total} != {micro} x {accumulation} x {world}"
    return Finding(
        f"train_batch_size {total} is "
        + (f"less than {shared}" if micro == 0 else f"no multiple of {shared}"),
        (place.label("samples in one step"),),
        (
            "the micro batch comes out as 0, and is refused"
            if micro == 0
            else f"the remainder is dropped, and the product is then checked: {came}",
            "ZeRO shards states and not the batch: every process takes at least one sample",
        ),
        f"write a multiple of {each}: {near}",
        Fix((place.replaced(near),), "unsafe"),
        (
            Term("data parallel", world, "processes"),
            Term("gradient_accumulation_steps", accumulation, "micro batches"),
        ),
    )


_NO_SAMPLES: Final = "batch_size should be a positive integer value"

batch_of_nothing = rows(
    "batch-of-nothing",
    "error",
    "init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `_get_dataloader` and "
            "`get_train_dataloader`, "
            "`_inner_training_loop`: len_dataloader // args.gradient_accumulation_steps"
        ),
        "torch 2.13.0 utils/data/sampler.py `BatchSampler`: ValueError",
    ),
    rows=(
        *(
            Row(
                f"trainer:{key}<1",
                "`{0.path}` is {0.value}",
                label="at least 1",
                why=why,
                help="write 1 or more",
                mend=Mend("unsafe", write=1),
            )
            for key, why in (
                ("per_device_train_batch_size", _NO_SAMPLES),
                ("per_device_eval_batch_size", _NO_SAMPLES),
                ("gradient_accumulation_steps", "integer division or modulo by zero"),
            )
        ),
    ),
)


_PINNED_KEYS: Final = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)


@rule(
    "batch-pinned-before-init",
    "warning",
    "load",
    consumers=("deepspeed", "transformers"),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `DeepSpeedConfig.__init__`: world_size "
            "is 1 where torch.distributed is not set up; transformers 5.23.0 modeling_utils.py: "
            "zero.Init"
        ),
        "Roblox/FAI-RL#72",
    ),
    reads=("deepspeed:train_batch_size",),
)
def batch_pinned_before_init(run: LintContext) -> Iterator[Finding]:
    """All three numbers of the batch are written in a file that is read before processes meet."""
    values = [run.effective("deepspeed", key) for key in _PINNED_KEYS]
    stage = run.effective("deepspeed", "zero_optimization.stage")
    numbers = [each.value for each in values if each.is_written and isinstance(each.value, int)]
    place = values[0].place
    if stage.value != 3 or len(numbers) < 3 or place is None or run.deepspeed_reader != "trainer":
        return
    total, micro, steps = numbers
    if total == micro * steps:
        return
    yield Finding(
        f"train_batch_size {total} is pinned at stage 3, where it is checked for 1 process first",
        (place.label(f"not {micro} x {steps} x 1"),),
        (
            (
                "from_pretrained hands the file to zero.Init; before the processes have met, "
                "DeepSpeed counts one"
            ),
        ),
        "leave train_batch_size out: DeepSpeed derives it",
        None if place.document.is_view else Fix((place.removed(),), "safe"),
    )


_TOTAL: Final = "train_batch_size"
_MICRO: Final = "train_micro_batch_size_per_gpu"
_STEPS: Final = "gradient_accumulation_steps"


@rule(
    "batch-product-mismatch",
    "error",
    "init",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/config.py `_batch_assertion`",
        "deepspeedai/DeepSpeed#6914",
    ),
    reads=("deepspeed:train_batch_size",),
)
def batch_product_mismatch(run: LintContext) -> Iterator[Finding]:
    """train_batch_size is not micro batch x accumulation x processes."""
    total, micro, steps = (run.effective("deepspeed", key) for key in (_TOTAL, _MICRO, _STEPS))
    if total.source not in ("document", "filled") or not (_is_count(total) and _is_count(micro)):
        return
    if steps.source == "default":  # DeepSpeed then derives it: total // micro // world
        yield from _derived(run, total, micro)
    elif _is_count(steps):
        yield from _given(run, total, micro, steps)


def _is_count(value: Effective) -> bool:
    return is_whole(value.value) and value.value > 0


def _given(
    run: LintContext, total: Effective, micro: Effective, steps: Effective
) -> Iterator[Finding]:
    world = run.data_parallel
    each = micro.value * steps.value
    if world is None:
        if total.value % each:
            yield _product_finding(run, total, micro, steps, None)
    elif total.value != each * world:
        yield _product_finding(run, total, micro, steps, world)


def _derived(run: LintContext, total: Effective, micro: Effective) -> Iterator[Finding]:
    world = run.data_parallel
    if total.value % (micro.value * (world or 1)):
        yield _product_finding(run, total, micro, None, world)


def _product_finding(
    run: LintContext, total: Effective, micro: Effective, steps: Effective | None, world: int | None
) -> Finding:
    factors = [micro, *([steps] if steps else [])]
    product = " x ".join(str(each.value) for each in factors)
    known = f"{product} x {world}" if world else f"{product} x any number of processes"
    terms = [
        Term(_MICRO, micro.value, "samples"),
        *([Term(_STEPS, steps.value, "micro batches")] if steps else []),
    ]
    relation = "is no multiple of" if steps is None or world is None else "is not"
    place = total.place
    fix = None
    if place is not None and steps is not None and world is not None:
        fix = Fix((place.replaced(micro.value * steps.value * world),), "unsafe")
    return Finding(
        f"{_TOTAL} {total.value} {relation} {known}",
        (
            *([place.label("samples in one step")] if place else []),
            *(each.place.label("", primary=False) for each in factors if each.place),
        ),
        (_who(run),) if world else (),
        f"leave {_TOTAL} out: DeepSpeed derives it from the other two",
        fix,
        (*terms, *([Term("data parallel", world, "processes")] if world else [])),
    )


def _who(run: LintContext) -> str:
    winner = run.world
    return f"processes: {winner.reason}" if winner else ""


_SIZES: Final = ("train_micro_batch_size_per_gpu", "train_batch_size")
_SHOWN: Final = 2
"""Sections of a file that shows no more than what its thread or manual speaks of."""
_REFERENCES: Final = (
    *("deepspeed", "deepspeed_config", "deepspeed_config.deepspeed_config_file"),
    "training_args.deepspeed",
)


@rule(
    "batch-size-left-out",
    "error",
    "init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `_set_batch_related_parameters`: "
            "AssertionError, either train_batch_size or train_micro_batch_size_per_gpu needs to be "
            "provided"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.fill_match`: fills "
            "auto only; accelerator.py `_prepare_deepspeed`"
        ),
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/deepspeed.py "
            "`prepare_model_for_deepspeed`: sets train_micro_batch_size_per_gpu"
        ),
    ),
    reads=("deepspeed:*",),
)
def batch_size_left_out(run: LintContext) -> Iterator[Finding]:
    """Neither of the two batch sizes that DeepSpeed can begin from."""
    if run.of("simpletuner"):  # it writes its own batch size into the file
        return
    for document in run.of("deepspeed"):
        is_elastic = document.value("elasticity.enabled") is True  # which chooses them itself
        if document.is_view or is_elastic:
            continue
        if all(document.value(key) is None for key in _SIZES):
            yield _size_finding(run, document)


def _size_finding(run: LintContext, document: Document) -> Finding:
    steps = document.get("gradient_accumulation_steps")
    is_filled = run.deepspeed_reader == "trainer"
    return Finding(
        "neither train_micro_batch_size_per_gpu nor train_batch_size is given",
        (
            steps.label("they cannot be derived from the accumulation alone")
            if steps is not None
            else Label("no batch size", document.start()),
        ),
        (
            "the trainer fills in a key that says auto, and adds none"
            if is_filled
            else "DeepSpeed derives the one from the other, and needs one to begin with",
        ),
        f'write "{_SIZES[0]}": ' + ('"auto"' if is_filled else "and a number"),
        certain=run.deepspeed_reader != "unknown",
        severity="warning" if _is_excerpt(run, document) else None,
    )


def _is_excerpt(run: LintContext, document: Document) -> bool:
    """Whether a file may be a part that somebody shows: few sections, and nobody refers to it."""
    if len(document.root.fields or ()) > _SHOWN:
        return False
    others = [each for each in run.documents if each is not document]
    return not any(isinstance(each.value(key), str) for each in others for key in _REFERENCES)


@rule(
    "least-batch-of-zero-3",
    "note",
    "out-of-memory",
    consumers=("deepspeed",),
    sources=(
        "modelscope/ms-swift#4710",
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `_set_batch_related_parameters`: "
            "train_batch_size = micro_batch * grad_acc * world_size at every stage"
        ),
    ),
    reads=("trainer:per_device_train_batch_size",),
)
def least_batch_of_zero_3(run: LintContext) -> Iterator[Finding]:
    """One sample a process at ZeRO-3: the batch is as small as it gets, and not one sample."""
    stage = run.effective("deepspeed", "zero_optimization.stage")
    batch, world, total = trainer_batch(run), run.data_parallel, run.value("parallel.world")
    if stage.value != 3 or batch is None or world is None or world < 2 or world != total:
        return
    micro, steps = batch
    if micro.value != 1 or steps.value != 1 or micro.place is None:
        return
    yield Finding(
        f"one step takes {world} samples: 1 on each of {world} processes",
        (micro.place.label("on each process"), *also(stage.place)),
        (
            (
                "ZeRO-3 shards parameters, gradients and states; every process still works on "
                "whole samples of its own, with all their activations"
            ),
        ),
        "to lay one sample over several devices use tensor or sequence parallelism",
        sum=(Term("micro batch", 1, "samples"), Term("data parallel", world, "processes")),
    )
