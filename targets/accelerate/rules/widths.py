"""Rules about widths of parallelism in accelerate's file."""

import math
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.model import BLOCKS, family
from tunec.compiler.lints.facts.sharding import SECTION, count, engine, shared_sequences
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace

_MEGATRON = tuple(f"megatron_lm_config.megatron_lm_{each}_degree" for each in ("tp", "pp"))
_WIDTHS = ("dp_replicate", "dp_shard", "tp", "cp")
_MESH = tuple(f"{SECTION}{each}_size" for each in _WIDTHS)
_OF_DEEPSPEED = f"{SECTION}sp_size"
"""The size of groups that DeepSpeed builds itself, and that accelerate does not check."""


@rule("error", "init", consumers=("accelerate",), reads=keys("accelerate", *_MEGATRON, *_MESH))
def widths_do_not_make_processes(run: LintContext) -> Iterator[Finding]:
    """The product of the parallel widths in accelerate's file is not the number of processes."""
    for document in run.of("accelerate"):
        world = count(document, "num_processes")
        if world is None or document.is_view:
            continue
        started = engine(document)
        if started is not None and started.value == "MEGATRON_LM":
            yield from _product(document, _MEGATRON, world, exactly=False)
        if started is not None and started.value == "FSDP":
            yield from _nothing_to_shard(document)
        sequence = count(document, _OF_DEEPSPEED)
        if sequence is None or sequence[0] == 1:
            yield from _product(document, _MESH, world, exactly=True)


def _nothing_to_shard(document: Document) -> Iterator[Finding]:
    """FSDP 2 shards over `dp_shard` and `cp`, but both have width 1."""
    widths = {each: count(document, f"{SECTION}{each}_size") for each in _WIDTHS}
    wide = [each for each in widths.values() if each is not None and each[0] > 1]
    if document.value("fsdp_config.fsdp_version") not in (2, "2") or not wide:
        return
    if any(widths[each] in wide for each in ("dp_shard", "cp")):
        return
    shard = widths["dp_shard"]
    yield Finding(
        "FSDP has no dimension left to shard over",
        (wide[0][1].label("takes all processes"), *also(shard[1] if shard else None, "1")),
        (
            "accelerate 1.15 says so; before, a KeyError: Invalid mesh_dim_names ('dp_shard_cp',)",
            "dp_shard_size is 1 where it is left out",
        ),
        "give dp_shard_size some of the processes, or leave FSDP out",
    )


def _product(
    document: Document, keys: tuple[str, ...], world: tuple[int, Place], *, exactly: bool
) -> Iterator[Finding]:
    widths = [found for key in keys if (found := count(document, key)) is not None]
    product = math.prod(number for number, _ in widths)
    number, said = world
    fits = product == number if exactly else number % product == 0
    if not widths or product == 1 or fits:
        return
    yield Finding(
        f"widths of {' x '.join(str(each) for each, _ in widths)} do not make {number} processes",
        (
            *(place.label("", primary=place is widths[0][1]) for _, place in widths),
            said.label(f"{number} processes", primary=False),
        ),
        (
            "the product of the widths has to be the number of processes"
            if exactly
            else "the processes have to divide into groups of tensor x pipeline width",
        ),
        f"start {product} processes, or change a width",
        sum=tuple(Term(place.path.rpartition(".")[2], each, "processes") for each, place in widths),
    )


_CONTEXT: Final = Row(
    f"accelerate:{SECTION}cp_size>1",
    "a context of {0.value} processes requires FSDP 2",
    label="refused",
    why="accelerate: cp_size > 1 needs the plugin of FSDP 2, which shards the model too",
    help="write distributed_type: FSDP and fsdp_version: 2",
    beside=("distributed_type=MULTI_GPU",),
    files_only=True,
)

widths_without_their_engine = rows(
    "widths-without-their-engine",
    "error",
    "init",
    consumers=("accelerate>=1.10",),
    rows=(
        Row(
            f"accelerate:{SECTION}sp_size>1",
            "sp_size {0.value} splits no sequence beside {1.value}",
            label="not read",
            why="only DeepSpeed uses it: each process works on whole sequences",
            help="write distributed_type: DEEPSPEED, or cp_size beside FSDP 2",
            beside=("distributed_type=MULTI_GPU|FSDP", f"no {SECTION}cp_size>1"),
            files_only=True,
            consequence="silent",
        ),
        Row(
            f"accelerate:{SECTION}cp_size>1",
            "cp_size {0.value} is refused beside sp_size {1.value}",
            label="refused",
            why="both split the sequences, and accelerate takes one of the two: ValueError",
            help="write sp_size: 1 beside FSDP 2, or cp_size: 1 beside DeepSpeed",
            beside=(f"{SECTION}sp_size>1",),
            since="accelerate>=1.13",
            files_only=True,
        ),
        _CONTEXT,
        replace(
            _CONTEXT,
            beside=("distributed_type=FSDP", "no fsdp_config.fsdp_version|fsdp_config.version=2"),
        ),
        Row(
            f"accelerate:{SECTION}dp_shard_size>1",
            "dp_shard_size {0.value} shards nothing beside {1.value}",
            label="not read",
            why="every process holds the whole model, as with dp_replicate_size",
            help="write distributed_type: FSDP and fsdp_version: 2, or dp_replicate_size",
            beside=("distributed_type=MULTI_GPU", f"no {SECTION}cp_size>1"),
            files_only=True,
            consequence="silent",
        ),
    ),
)


@rule("error", "init", consumers=("accelerate>=1.12",), reads=(f"accelerate:{SECTION}sp_size",))
def sequence_groups_uncounted(run: LintContext) -> Iterator[Finding]:
    """The widths, with that of shared sequences, do not multiply to the number of processes."""
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


_KEY: Final = "deepspeed_config.deepspeed_moe_layer_cls_names"


@rule("error", "init", consumers=("accelerate",), reads=(f"accelerate:{_KEY}",))
def leaf_class_of_another_model(run: LintContext) -> Iterator[Finding]:
    """The class of leaf modules belongs to another model."""
    own, known = BLOCKS.get(family(run)), frozenset(BLOCKS.values())
    if own is None:
        return
    for place in run.each("accelerate", _KEY):
        if not isinstance(place.value, str):
            continue
        for name in place.value.split(","):
            if name in known and name != own:
                yield Finding(
                    f"{family(run)} has no module of class {name}",
                    (place.label("refused"),),
                    (f"its experts are in {own}",),
                    f"write {own}",
                    Fix((place.replaced(own),), "safe") if place.value == name else None,
                )
