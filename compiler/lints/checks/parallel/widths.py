"""Widths of parallelism that do not divide what they split."""

import math
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.sharding import SECTION, shared_sequences
from tunec.compiler.lints.facts.training_loop import is_number, is_whole
from tunec.compiler.lints.rule import Finding, keys, rule

_EXPERT_BLOCK: Final = "expert_parallel"


@rule(
    "expert-width-refused",
    "error",
    "init",
    consumers=("deepspeed>=0.19.8",),
    sources=(
        "deepspeed 0.19.8 module_inject/auto_ep_folding.py `build_folding_spec`, "
        "`validate_folding_global`; runtime/engine.py `_configure_expert_parallel`; not in "
        "0.18.9"
    ),
    reads=("deepspeed:expert_parallel.enabled",),
)
def expert_width_refused(run: LintContext) -> Iterator[Finding]:
    """Experts to be shared by processes in a way that AutoEP refuses."""
    for on in run.each("deepspeed", f"{_EXPERT_BLOCK}.enabled"):
        if on.value is True:
            yield from _width(run)
            yield from _within(run)
            yield from _beside_tensors(run, on)


def _width(run: LintContext) -> Iterator[Finding]:
    world = run.world
    if world is None or world.rank == Rank.CATALOGUE or not is_whole(world.value):
        return
    for each in run.each("deepspeed", f"{_EXPERT_BLOCK}.autoep_size"):
        if is_whole(each.value) and each.value > 1 and world.value % each.value:
            yield Finding(
                f"{world.value} processes do not divide into groups of {each.value} for experts",
                (each.label("refused"), *also(run.place(world))),
                ("expert_parallel.autoep_size must divide the stage size",),
                f"write an autoep_size that divides {world.value}",
            )


def _within(run: LintContext) -> Iterator[Finding]:
    for each in run.each("deepspeed", f"{_EXPERT_BLOCK}.expert_tensor_parallel_size"):
        if is_whole(each.value) and each.value != 1:
            yield Finding(
                f"expert_tensor_parallel_size {each.value}: an expert is not split",
                (each.label("refused"),),
                ("it is reserved for tensor parallelism within an expert, and is not there yet",),
                "write expert_tensor_parallel_size: 1",
            )


def _beside_tensors(run: LintContext, on: Place) -> Iterator[Finding]:
    width = run.said("deepspeed", f"{_EXPERT_BLOCK}.autoep_size")
    tensors = run.said("deepspeed", "tensor_parallel.autotp_size")
    is_split = tensors is not None and is_whole(tensors.value) and tensors.value > 1
    if tensors is not None and is_split and (width is None or width.value == 1):
        yield Finding(
            f"autotp_size {tensors.value} beside experts that are not shared",
            ((width or on).label("refused"), *also(tensors)),
            ("AutoEP+AutoTP folding requires expert_parallel.autoep_size > 1",),
            "write an autoep_size above 1, or remove expert_parallel",
        )


_WIDTHS: Final = ("parallel.tensor", "parallel.sequence")
_WRITTEN: Final = ("tensor_parallel.autotp_size", "sequence_parallel_size")


@rule(
    "parallel-width-does-not-divide",
    "error",
    "init",
    consumers=("deepspeed", "accelerate", "axolotl"),
    sources=(
        (
            "deepspeed 0.16.9 to 0.19.8 utils/groups.py `_ensure_divisibility`, "
            "`_init_tp_mesh_device`"
        ),
        (
            "accelerate 1.15.0 parallelism_config.py `ParallelismConfig`: total size must equal the"
            " number of processes"
        ),
    ),
    reads=("slot:parallel.tensor", "slot:parallel.sequence", *keys("deepspeed", *_WRITTEN)),
)
def parallel_width_does_not_divide(run: LintContext) -> Iterator[Finding]:
    """The processes cannot be split by the widths that are asked for."""
    world = run.world
    widths = [each for slot in _WIDTHS if (each := run.observed(slot)) and each.value > 1]
    if world is None or not isinstance(world.value, int):
        return
    if not widths:
        yield from _written(run, world.value)
        return
    product = math.prod(each.value for each in widths)
    places = [place for each in widths if (place := run.place(each)) is not None]
    if world.value % product == 0 or not places:
        return
    said = run.place(world)
    yield Finding(
        f"{world.value} processes do not divide into groups of {product}",
        (*(place.label("", primary=place is places[0]) for place in places), *also(said)),
        ("each group of tensor x sequence parallel processes works on one sample",),
        f"start a multiple of {product} processes, or write a width that divides {world.value}",
        sum=tuple(Term(each.slot, each.value, "processes") for each in widths),
        severity="warning" if world.rank == Rank.CATALOGUE else None,
    )


def _written(run: LintContext, world: int) -> Iterator[Finding]:
    """Widths in a ds_config.json whose reader's table does not speak of them."""
    for key in _WRITTEN:
        for place in run.each("deepspeed", key):
            if type(place.value) is int and place.value > 1 and world % place.value:
                yield Finding(
                    f"{world} processes do not divide into groups of {place.value}",
                    (place.label(""),),
                    ("each group of tensor or sequence parallel processes works on one sample",),
                    f"start a multiple of {place.value} processes, or write a width that divides "
                    f"{world}",
                    sum=(Term(key, place.value, "processes"),),
                )


@rule(
    "sequence-groups-uncounted",
    "error",
    "init",
    consumers=("accelerate>=1.12",),
    sources=(
        (
            "accelerate 1.12.0 to 1.15.0 accelerator.py `_prepare_deepspeed`: train_batch_size is "
            "micro batch x accumulation x `ParallelismConfig.data_parallel_size`; "
            "`_validate_accelerator` does not compare where sp_size is above 1"
        ),
        "deepspeed 0.18.9, 0.19.8 runtime/config.py `_batch_assertion`",
    ),
    reads=(f"accelerate:{SECTION}sp_size",),
)
def sequence_groups_uncounted(run: LintContext) -> Iterator[Finding]:
    """The widths beside shared sequences do not make up the processes that are started."""
    world = run.world
    if world is None or not isinstance(world.value, int):
        return
    for place in shared_sequences(run):
        names = ("dp_replicate_size", "dp_shard_size")
        widths = {name: place.document.value(SECTION + name, 1) for name in names}
        if not all(isinstance(width, int) and width > 0 for width in widths.values()):
            continue
        data = widths["dp_replicate_size"] * widths["dp_shard_size"]
        groups, rest = divmod(world.value, place.value)
        if rest or data == groups:
            continue
        said = run.place(world)
        yield Finding(
            f"{world.value} processes are {groups} groups that share a sequence, and the data "
            f"parallel widths say {data}",
            (place.label("ranks of one group"), *also(said)),
            ("accelerate counts the batch by these widths, and DeepSpeed by its groups",),
            f"write parallelism_config_dp_shard_size: {groups}",
            sum=(
                Term("data parallel width by the file", data, "groups"),
                Term("groups of processes", groups, "groups"),
            ),
            severity="warning" if world.rank == Rank.CATALOGUE else None,
        )


_KEYS: Final = (
    ("accelerate", "parallelism_config.parallelism_config_sp_size"),
    ("trainer", "parallelism_config.sp_size"),
)


@rule(
    "sequence-width-does-not-divide-heads",
    "error",
    "init",
    consumers=("deepspeed>=0.18.2",),
    sources=(
        "deepspeed 0.19.8 runtime/sequence_parallel/ulysses_sp.py "
        "`UlyssesSPAttentionHF.__init__`: Attention head count is not divisible by SP size; KV "
        "attention head count ..."
    ),
    reads=tuple(f"{kind}:{key}" for kind, key in _KEYS),
)
def sequence_width_does_not_divide_heads(run: LintContext) -> Iterator[Finding]:
    """Heads cannot be spread over the sequence parallel processes."""
    if run.model is None:
        return
    text = [each for each in run.model.architecture.stacks if each.part == "text"]
    for kind, key in _KEYS:
        for place in run.each(kind, key):
            width = place.value
            if not isinstance(width, int) or isinstance(width, bool) or width < 2 or not text:
                continue
            heads, shared = text[0].heads, text[0].kv_heads
            name = heads if heads % width else shared
            if heads % width == 0 and (shared % width == 0 or width % shared == 0):
                continue
            yield Finding(
                f"{name} heads of {run.model.path} over {width} sequence parallel processes",
                (place.label("refused"),),
                ("Ulysses gives each process whole heads of the whole sequence",),
                f"write a width that divides {heads}",
                sum=(
                    Term("attention heads", heads, "heads"),
                    Term("key and value heads", shared, "heads"),
                ),
            )


_TENSOR_BLOCK: Final = "tensor_parallel"
_NESTED: Final = ("tp", "tensor_parallel")
"""`TPTrainingConfig.tensor_parallel` and its alias."""

_WHY: Final = (
    "autotp_size is 0, which is off, unless it is written; only a script that calls tp_model_init "
    "splits the model otherwise"
)


@rule(
    "tensor-width-unread",
    "warning",
    "silent",
    consumers=("deepspeed>=0.16.4",),
    sources=(
        (
            "deepspeed 0.16.9 to 0.19.8 runtime/tensor_parallel/config.py `TPTrainingConfig`: "
            "autotp_size, 0: disabled; runtime/engine.py: AutoTP where autotp_size is above it"
        ),
        "deepspeedai/DeepSpeed#7389",
    ),
    reads=keys("deepspeed", *(f"{_TENSOR_BLOCK}.{name}.tp_size" for name in _NESTED)),
)
def tensor_width_unread(run: LintContext) -> Iterator[Finding]:
    """A width for tensor parallelism where DeepSpeed looks for none."""
    asked = run.said("deepspeed", f"{_TENSOR_BLOCK}.autotp_size")
    if asked is not None and asked.value not in (0, 1):
        return
    for name in _NESTED:
        for width in run.each("deepspeed", f"{_TENSOR_BLOCK}.{name}.tp_size"):
            if is_number(width.value) and width.value > 1:
                yield Finding(
                    f"tp_size {width.value} without autotp_size: the model is not split",
                    (width.label("not a width by itself"),),
                    (_WHY,),
                    f"write {_TENSOR_BLOCK}: {{autotp_size: {width.value}}}",
                )
