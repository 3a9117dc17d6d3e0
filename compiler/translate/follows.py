"""Consequences of what files set: counts from counts, and slots that an engine leaves unused."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any, Final

from tunec.compiler.ir.ledger import Definition, Ledger, Origin, Rank
from tunec.compiler.target import Target

_AUTHOR: Final = "translate"
_Rule = Callable[["_Known"], Iterator[Definition]]


class _Known:
    """The effective values so far, and who set them."""

    def __init__(self, ledger: Ledger) -> None:
        self._winners = {each.slot: each for each in ledger.winners()}

    def __getitem__(self, slot: str) -> Any:
        winner = self._winners.get(slot)
        return None if winner is None else winner.value

    def is_written(self, slot: str) -> bool:
        """Whether a file, or the command line, sets the slot."""
        winner = self._winners.get(slot)
        return winner is not None and winner.rank >= Rank.OBSERVED

    def is_settled(self, slot: str) -> bool:
        """Whether a file or a default sets the slot, so that it is not derived from others."""
        winner = self._winners.get(slot)
        return winner is not None and winner.rank != Rank.DERIVED

    def counts(self, *slots: str) -> list[int] | None:
        """The values of the slots, if each is a number above 0."""
        values = [self[slot] for slot in slots]
        return values if all(isinstance(each, int) and each > 0 for each in values) else None

    def follows(self, slot: str, value: Any, reason: str, *rests: str) -> Iterator[Definition]:
        """A definition of a slot that nothing written sets."""
        if not self.is_written(slot):
            origins = tuple(Origin("slot", each) for each in rests)
            yield Definition(slot, value, Rank.DERIVED, _AUTHOR, reason, origins)

    def replaces(self, slot: str, other: str, reason: str) -> Iterator[Definition]:
        """A definition that unsets a slot, if another one replaces it with higher rank."""
        winner, beaten = self._winners.get(slot), self._winners.get(other)
        if winner is None or winner.value is None or winner.rank < Rank.OBSERVED:
            return
        rank = Rank.PIN if winner.rank == Rank.PIN else Rank.DERIVED
        if beaten is None or beaten.rank < rank:
            yield Definition(other, None, rank, _AUTHOR, reason, (Origin("slot", slot),))


def with_consequences(
    ledger: Ledger, tables: Sequence[Target], *, reads_deepspeed: bool
) -> tuple[Ledger, Mapping[str, tuple[Any, ...]]]:
    """The ledger with derived slots, and the possible values of open slots.

    Written values stay unchanged. `tables` are those by which the files were read;
    `reads_deepspeed` tells whether a configuration of DeepSpeed is among them.
    """
    ledger = ledger.add(tuple(each for table in tables for each in without_choice(table)))
    rules: tuple[_Rule, ...] = (*_COUNTS, partial(_of_programs, tables=tables), *_RULES)
    for rule in rules:
        ledger = ledger.add(tuple(rule(_Known(ledger))))
    engines = _engines(ledger, tables, reads_deepspeed=reads_deepspeed)
    if len(engines) == 1:
        ledger = ledger.add(tuple(_of_engine(_Known(ledger), engines[0])))
    if engines:
        ledger = ledger.add(tuple(_of_other_engines(_Known(ledger), engines)))
        ledger = ledger.add(tuple(_autocast(_Known(ledger), engines)))
    return ledger, {"parallel.engine": engines} if len(engines) > 1 else {}


# ── processes and batches ────────────────────────────────────────────────────────────────────────


_STARTING: Final = ("torchrun", "deepspeed", "accelerate")


def _world(known: _Known) -> Iterator[Definition]:
    devices = known.counts("devices.nodes", "devices.per_node")
    starts = known["launch.launcher"] in _STARTING
    if devices and starts and known.is_written("devices.per_node"):
        reason = "one process a device"
        yield from known.follows("parallel.world", devices[0] * devices[1], reason)


def _one_machine(known: _Known) -> Iterator[Definition]:
    """One machine, whose processes a launcher starts without a flag for more."""
    is_open = known["devices.nodes"] is None and known["devices.per_node"] is None
    if is_open and known.is_written("parallel.world") and known["launch.launcher"] in _STARTING:
        yield from known.follows("devices.nodes", 1, "no flag names another machine")


def _nodes(known: _Known) -> Iterator[Definition]:
    counts = known.counts("parallel.world", "devices.per_node")
    if counts and counts[0] % counts[1] == 0:
        yield from known.follows("devices.nodes", counts[0] // counts[1], "world / per node")


def _per_node(known: _Known) -> Iterator[Definition]:
    counts = known.counts("parallel.world", "devices.nodes")
    if counts and counts[0] % counts[1] == 0:
        yield from known.follows("devices.per_node", counts[0] // counts[1], "world / nodes")
    elif known["parallel.world"] == 1:
        for slot in ("devices.nodes", "devices.per_node"):
            yield from known.follows(slot, 1, "one process")


def _whole(known: _Known) -> Iterator[Definition]:
    """Tensor and sequence parallelism are 1 unless a key requests them."""
    for slot in ("parallel.tensor", "parallel.sequence"):
        if known[slot] is None:
            yield from known.follows(slot, 1, "no file sets up groups of ranks")


def _data(known: _Known) -> Iterator[Definition]:
    counts = known.counts("parallel.world", "parallel.tensor", "parallel.sequence")
    if counts and counts[0] % (counts[1] * counts[2]) == 0:
        width = counts[0] // (counts[1] * counts[2])
        yield from known.follows("parallel.data", width, "world / (tensor x sequence)")


def _format(known: _Known) -> Iterator[Definition]:
    """Without a format, records are read in the program's default format."""
    yield from known.follows("data.format", None, "no file says what records look like")


def _of_programs(known: _Known, tables: Iterable[Target]) -> Iterator[Definition]:
    """Slots that programs derive from counts."""
    for table in tables:
        for slot, value in table.derives(known.__getitem__).items():
            yield from known.follows(slot, value, f"{table.name} does so by default")


def _accumulation(known: _Known) -> Iterator[Definition]:
    return _share(known, "accumulation", "micro")


def _micro(known: _Known) -> Iterator[Definition]:
    return _share(known, "micro", "accumulation")


def _share(known: _Known, wanted: str, other: str) -> Iterator[Definition]:
    """What is left of the global batch over the processes and the other share."""
    counts = known.counts("batch.global", f"batch.{other}", "parallel.data")
    if counts and known.is_settled("batch.global") and counts[0] % (counts[1] * counts[2]) == 0:
        share = counts[0] // (counts[1] * counts[2])
        yield from known.follows(f"batch.{wanted}", share, f"global / ({other} x data)")


def _global(known: _Known) -> Iterator[Definition]:
    counts = known.counts("batch.micro", "batch.accumulation", "parallel.data")
    if counts:
        samples = counts[0] * counts[1] * counts[2]
        yield from known.follows("batch.global", samples, "micro x accumulation x data")


def _scaling(known: _Known) -> Iterator[Definition]:
    compute = known["precision.compute"]
    if compute is not None:
        word = "dynamic" if compute == "fp16" else "none"
        reason = f"the usual setting with {compute}"
        yield from known.follows("precision.loss_scaling", word, reason, "precision.compute")


# ── the method ───────────────────────────────────────────────────────────────────────────────────


def _frozen(known: _Known) -> Iterator[Definition]:
    if known["adapter.kind"] == "lora":
        reason = "adapters freeze the whole base"
        yield from known.follows("adapter.frozen", (), reason, "adapter.kind")


# ── the schedule ─────────────────────────────────────────────────────────────────────────────────


def _length(known: _Known) -> Iterator[Definition]:
    yield from known.replaces(
        "schedule.steps", "schedule.epochs", "the length of the run is given in steps"
    )


def _warmup(known: _Known) -> Iterator[Definition]:
    reason = "the warm-up is given in steps"
    yield from known.replaces("schedule.warmup_steps", "schedule.warmup_share", reason)
    share, steps = known["schedule.warmup_share"], known["schedule.steps"]
    if share and steps:
        rests = ("schedule.warmup_share", "schedule.steps")
        yield from known.follows(
            "schedule.warmup_steps", ceil(share * steps), "their product", *rests
        )


def _parameters(known: _Known) -> Iterator[Definition]:
    if known["zero.stage"] in (0, 1, 2):
        reason = "below stage 3 no parameters are moved"
        yield from known.follows("zero.offload_param", "none", reason, "zero.stage")


# ── the engine ───────────────────────────────────────────────────────────────────────────────────

_SILENT: Final[Mapping[str, Mapping[str, Any]]] = {
    "deepspeed": {
        "zero.stage": 0,
        "zero.offload_optimizer": "none",
        "zero.offload_param": "none",
        "zero.hpz_partition": 1,
    },
    "fsdp": {
        "fsdp.version": 0,
        "fsdp.sharding": "none",
        "fsdp.offload_params": False,
        "fsdp.wrap": "none",
        "fsdp.wrap_classes": (),
        "fsdp.min_parameters": 0,
        "fsdp.checkpointing": False,
    },
}
"""Values of an engine's slots if another engine runs (compiler/ir/invariants.py)."""


def _engines(ledger: Ledger, tables: Iterable[Target], *, reads_deepspeed: bool) -> tuple[str, ...]:
    """The engines that can run; empty if any can.

    A program whose files could configure DeepSpeed or FSDP, and do not, runs without either.
    """
    known = ledger.winner("parallel.engine")
    if known is not None:
        return (known.value,)
    if reads_deepspeed:
        return ("deepspeed",)
    if not any(_can_say(table, "parallel.engine") for table in tables):
        return ()
    world = ledger.winner("parallel.world")
    if world is None:
        return ("none", "ddp")
    return ("ddp",) if world.value > 1 else ("none",)


def _of_engine(known: _Known, engine: str) -> Iterator[Definition]:
    if known["parallel.engine"] is None:
        yield from known.follows("parallel.engine", engine, "the only engine that the files allow")


def _of_other_engines(known: _Known, engines: Sequence[str]) -> Iterator[Definition]:
    for name, values in _SILENT.items():
        for slot, value in values.items() if name not in engines else ():
            reason = f"{' or '.join(engines)} runs"
            yield from known.follows(slot, value, reason, "parallel.engine")


def _autocast(known: _Known, engines: Sequence[str]) -> Iterator[Definition]:
    if engines == ("deepspeed",):
        reason = "DeepSpeed casts the module"
        yield from known.follows("states.autocast", False, reason, "parallel.engine")


_COUNTS: Final[tuple[_Rule, ...]] = (
    *(_world, _one_machine, _nodes, _per_node, _whole, _data, _format),
)
_RULES: Final[tuple[_Rule, ...]] = (
    *(_accumulation, _micro, _global, _scaling, _frozen, _length, _warmup, _parameters),
)


def _can_say(table: Target, slot: str) -> bool:
    return any(slot in entry.slots for file in table.files for entry in file.entries)


def without_choice(table: Target) -> Iterator[Definition]:
    """Definitions of slots for which a consumer has only one value."""
    for slot, cannot in table.cannot.items():
        if cannot.loses and len(cannot.harmless) == 1 and not _can_say(table, slot):
            (value,) = cannot.harmless
            yield Definition(slot, value, Rank.CONSUMER, table.name, cannot.reason)
