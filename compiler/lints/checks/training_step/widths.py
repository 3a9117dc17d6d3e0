"""Widths of parallelism, experts, and the attention that these widths need."""

import math
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Place, also
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.facts.model import experts, family, has_whole_heads
from tunec.compiler.lints.facts.sharding import SECTION, shared_sequences
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rule import Finding, keys, rule

_WIDTHS: Final = ("parallel.tensor", "parallel.sequence")
_WRITTEN: Final = ("tensor_parallel.autotp_size", "sequence_parallel_size")


@rule(
    "error",
    "init",
    consumers=("deepspeed", "accelerate", "axolotl"),
    reads=("slot:parallel.tensor", "slot:parallel.sequence", *keys("deepspeed", *_WRITTEN)),
)
def parallel_width_does_not_divide(run: LintContext) -> Iterator[Finding]:
    """The requested widths do not divide the number of processes."""
    world = run.world
    widths = [each for slot in _WIDTHS if (each := run.observed(slot)) and each.value > 1]
    if world is None or not isinstance(world.value, int):
        return
    if not widths:
        yield from _written(run, world.value)
        return
    product = math.prod(each.value for each in widths)
    places = [place for each in widths if (place := run.place(each)) is not None]
    if world.value % product == 0 or not places or _is_started_as(run, product):
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


_PROCESSES: Final = "environment.NPROC_PER_NODE"
"""The variable for the number of processes that ms-swift and LLaMA-Factory start: swift 2.0 to 4.3
cli/main.py `main`."""


def _is_started_as(run: LintContext, product: int) -> bool:
    """Whether the program itself starts a number of processes that the groups divide."""
    starts = (each.value for each in run.each("launch", _PROCESSES))
    return any(str(each).isdecimal() and int(str(each)) % product == 0 for each in starts)


def _written(run: LintContext, world: int) -> Iterator[Finding]:
    """Report widths in a ds_config.json that are missing from its reader's table."""
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


_KEYS: Final = (
    ("accelerate", "parallelism_config.parallelism_config_sp_size"),
    ("trainer", "parallelism_config.sp_size"),
)


@rule(
    "error",
    "init",
    consumers=("deepspeed>=0.18.2",),
    reads=tuple(f"{kind}:{key}" for kind, key in _KEYS),
)
def sequence_width_does_not_divide_heads(run: LintContext) -> Iterator[Finding]:
    """The heads cannot be divided among the sequence parallel processes."""
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
            if has_whole_heads(text[0], width):
                continue
            yield Finding(
                f"{width} sequence processes do not divide the {name} heads of {run.model.path}",
                (place.label("refused"),),
                ("Ulysses gives each process whole heads of the whole sequence",),
                f"write a width that divides {heads}",
                sum=(
                    Term("attention heads", heads, "heads"),
                    Term("key and value heads", shared, "heads"),
                ),
            )


@rule(
    "error", "step", consumers=("transformers",), reads=keys("trainer|model", "attn_implementation")
)
def context_attention_not_sdpa(run: LintContext) -> Iterator[Finding]:
    """Context parallelism is used with a model whose attention is not SDPA."""
    if run.runs("transformers<=4.51.3"):
        return  # whose Trainer shares no contexts
    own = run.said("trainer", "attn_implementation") or run.said("model", "attn_implementation")
    if own is None or not isinstance(own.value, str) or own.value == "sdpa":
        return
    for place in _widths(run):
        if is_whole(place.value) and place.value > 1:
            yield Finding(
                f"{place.value} ranks share the context, and the model attends by {own.value}",
                (own.label("refused"), place.label("", primary=False)),
                ("Context parallelism is supported only with SDPA attention",),
                "write attn_implementation: sdpa",
            )


def _widths(run: LintContext) -> Iterator[Place]:
    yield from run.each("accelerate", f"{SECTION}cp_size")
    for document in launches(run, "accelerate"):
        place = document.get("flags.parallelism_config_cp_size")
        if place is not None and document.get("flags.use_parallelism_config"):
            yield place


@rule(
    "error",
    "init",
    consumers=("deepspeed>=0.18.2",),
    reads=keys("trainer|model", "attn_implementation"),
)
def sequence_attention_differs(run: LintContext) -> Iterator[Finding]:
    """Sequence parallelism wraps another attention kernel than the model uses."""
    own = run.said("trainer", "attn_implementation") or run.said("model", "attn_implementation")
    kernel = own.value if own is not None else None
    if own is None or not isinstance(kernel, str):
        return
    for place in shared_sequences(run):
        core = place.document.get(f"{SECTION}sp_attn_implementation")
        asked = core.value if core is not None else "sdpa"
        if asked == kernel:
            continue
        compares = run.runs("deepspeed>=0.19")
        yield Finding(
            f"sequences are split for {asked}, but the model runs {kernel}",
            (
                (core or place).label("" if core is not None else "sdpa by default"),
                own.label("what runs", primary=False),
            ),
            (
                "DeepSpeed refuses that from 0.19 on"
                if compares
                else "before 0.19 nothing compares them: each rank sees only its own part",
            ),
            f"write sp_attn_implementation: {kernel}",
            consequence="init" if compares else "silent",
        )


_SINCE: Final = "trl>=1.7"


@rule(
    "error",
    "init",
    consumers=("trl", "llamafactory"),
    reads=(*keys("|".join(TRL), "router_aux_loss_coef"), "llamafactory:moe_aux_loss_coef"),
)
def balancing_of_no_experts(run: LintContext) -> Iterator[Finding]:
    """A load balancing loss is set for a model without experts."""
    if run.model is None or experts(run) or run.model.architecture.kind == "diffusion":
        return
    for document in run.of("llamafactory"):
        at = document.get("moe_aux_loss_coef")
        if at is not None and at.value and not document.is_view:
            yield Finding(
                f"moe_aux_loss_coef does nothing for {family(run)}",
                (at.label("not read"),),
                ("the model has no experts to balance",),
                "remove it",
                severity="warning",
                consequence="silent",
            )
    for document in run.of(*TRL):
        at = document.get("router_aux_loss_coef")
        if at is not None and at.value and not document.is_view and run.runs(_SINCE) is not False:
            yield Finding(
                f"router_aux_loss_coef is refused for {family(run)}",
                (at.label("no router"),),
                ("there is no auxiliary loss to weight",),
                "remove it",
            )
