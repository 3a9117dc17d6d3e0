"""Changes to a spec that would make it fit: each is an argument, tried by compiling the spec."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations
from shlex import quote
from typing import Final

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.facts import Facts
from tunec.compiler.ir.values import plain
from tunec.compiler.passes.quantized_base import with_base
from tunec.compiler.search_premises import decided, unbound_seconds, unpinned
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.catalogue import UnknownName, cluster
from tunec.schemas.terms import STEPS_IN_BACKWARD


class Way(Struct, frozen=True):
    """A change to a spec: the `--set` arguments, and what it costs besides time."""

    rank: int
    """How much of the intent it changes, from 0 (nothing about learning) to 5 (the hardware)."""
    settings: tuple[str, ...]
    cost: str

    @property
    def arguments(self) -> str:
        """The change as shell arguments."""
        return " ".join(map(_argument, self.settings))


def _argument(setting: str) -> str:
    """Hardware has an argument of its own, which overrules `--set`."""
    path, _, value = setting.partition("=")
    return f"--hardware {value}" if path == "hardware" else f"--set {quote(setting)}"


class Repair(Struct, frozen=True):
    """The outcome of the spec with more settings, compiled for the requested targets."""

    seconds: float | None = None
    """Seconds for a sample; None if nothing fits."""
    fault: str | None = None
    """Why it does not compile although it fits."""


Attempt = Callable[[Sequence[str]], Repair]
Kind = Sequence[Way]
"""Ways of one kind, the least change first."""

_MOST: Final = 6


def repairs(facts: Facts, found: Iterable[Diagnostic], attempt: Attempt) -> Iterator[Diagnostic]:
    """Add to each 'nothing fits' or 'no layout can run' the tried changes that solve it."""
    every = list(found)
    spoiled = any(each.severity == "error" and each.id not in _NONE_FITS for each in every)
    for each in every:
        blocked: list[tuple[Way, str]] = []
        timing = partial(_seconds, attempt, blocked)
        if each.id == "E0701":
            working = working_ways(facts, timing)
            told = _help(working, unbound_seconds(facts)) if working else _no_help(blocked, spoiled)
            yield replace(each, help=told)
        elif each.id == "E0702":
            freed = [way for kind in _freeing(facts) if (way := _first(kind, timing))]
            yield replace(each, help=_help(freed[:_MOST], None)) if freed else each
        else:
            yield each


def _help(working: Sequence[tuple[Way, float]], unbound: float | None) -> str:
    ratio = "" if unbound is None else ", with its time relative to unlimited memory"
    lines = [f"each of these was compiled and fits{ratio}:"]
    for way, seconds in working:
        time = f"{seconds / unbound:.2f} x the time; " if unbound else ""
        lines += [f"  {way.arguments}", f"    {time}{way.cost}"]
    return "\n".join(lines)


_NONE_FITS: Final = frozenset({"E0701", "E0702"})


def _no_help(blocked: Sequence[tuple[Way, str]], spoiled: bool) -> str:
    """The help if no change works: the first change that fits, and what prevents it.

    Beside another error no change compiles, so nothing is known about them.
    """
    if spoiled and not blocked:
        return "fix the other errors first: beside them no change can be tried"
    if not blocked:
        return "no change of method, sequence or hardware was found that makes it fit"
    way, fault = blocked[0]
    return f"this fits, but does not compile:\n  {way.arguments}\n    {fault}"


_Timing = Callable[[Way], float | None]
"""Seconds for a sample with a change that works; None if it does not work."""


def _seconds(attempt: Attempt, blocked: list[tuple[Way, str]], way: Way) -> float | None:
    """Try a change; if it fits but does not compile, add it to `blocked`."""
    found = attempt(way.settings)
    if found.fault is None:
        return found.seconds
    blocked.append((way, found.fault))
    return None


def working_ways(facts: Facts, attempt: _Timing) -> list[tuple[Way, float]]:
    """Changes that make the spec fit, with seconds for a sample: the smallest of each kind.

    Two changes together are tried only if no single one is enough. Changes with the least effect on
    what is learned come first, then the fastest.
    """
    kinds = list(_intent(facts))
    singles = [found for kind in kinds if (found := _first(kind, attempt))]
    if not singles:
        pairs = (_both(a, b) for some, more in combinations(kinds, 2) for a in some for b in more)
        singles = [found] if (found := _first(pairs, attempt)) else []
    devices = [found for kind in _hardware(facts) if (found := _first(kind, attempt))]
    singles.sort(key=lambda each: (each[0].rank, each[1]))
    return [*singles[: _MOST - min(len(devices), 1)], *devices][:_MOST]


def _first(kind: Iterable[Way], attempt: _Timing) -> tuple[Way, float] | None:
    """The first way of a kind that works, if any."""
    tried = ((way, attempt(way)) for way in kind)
    return next(((way, seconds) for way, seconds in tried if seconds is not None), None)


def _both(first: Way, second: Way) -> Way:
    settings = (*first.settings, *second.settings)
    return Way(max(first.rank, second.rank), settings, f"{first.cost}; {second.cost}")


# ── ways ─────────────────────────────────────────────────────────────────────────────────────────

_BY_TRL: Final = Way(
    0,
    ("software.trl=1.16.0",),
    "no loss in quality with TRL, which computes the loss in chunks (by default from 1.7 on)",
)
_BY_LIGER: Final = Way(
    0,
    ("software.liger-kernel=0.8.0",),
    "no loss in quality: Liger fuses the loss (arXiv 2410.10989), with its package installed",
)
_FSDP: Final = Way(
    0,
    ("engine=fsdp",),
    "no loss in quality: FSDP shards all weights; the checkpoint format differs",
)
_SHARDABLE: Final = Way(
    1, ("train.optimizer.name=adamw",), "DeepSpeed shards its states, and offloads them"
)
_FSDP_OF_PACKED: Final = Way(
    0,
    ("engine=fsdp", "software.transformers=4.57.6"),
    (
        "no loss in quality: FSDP shards the packed base, which transformers before 5.0 loads on "
        "the host"
    ),
)
_FSDP_OF_PACKED_BY_PEFT: Final = Way(
    0, (*_FSDP_OF_PACKED.settings, "software.peft=0.20.0"), _FSDP_OF_PACKED.cost
)
"""With the last release of PEFT that saves adapters below FSDP 1's wrappers."""
_FSDP_OF_PACKED_BY_TRL: Final = Way(
    0, (*_FSDP_OF_PACKED.settings, "software.trl=0.27.2"), _FSDP_OF_PACKED.cost
)
"""With the last release of TRL that is as old as transformers before 5.0."""
_INPUTS_AWAY: Final = Way(
    0,
    ("pin.activation_checkpointing.offload=true", "pin.activation_checkpointing.mode=layer"),
    "no loss in quality: activations wait for the backward pass in host RAM",
)
_EIGHT_BIT: Final = (
    "8-bit states do as well as 32-bit ones in arXiv 2110.02861; paged by the driver"
)
_PAGED: Final = Way(1, ("train.optimizer.name=paged_adamw_8bit",), _EIGHT_BIT)
_ADAFACTOR: Final = Way(
    1, ("train.optimizer.name=adafactor",), "factored second moments, no first (arXiv 1804.04235)"
)
_BF16: Final = "pin={states.weights: bf16, states.trainable: bf16, states.gradients: bf16}"
_ROUNDED: Final = (
    "weights are rounded to bf16 at each step, so small updates are lost (arXiv 2010.06192)"
)
_PURE: Final = (
    Way(2, (_BF16, "pin.states.optimizer=bf16"), _ROUNDED),
    Way(2, (_BF16, *_PAGED.settings), f"{_ROUNDED}; {_EIGHT_BIT}"),
    Way(2, (_BF16, "pin.states.optimizer=bf16", *_ADAFACTOR.settings), _ROUNDED),
)
_IN_BACKWARD: Final = (
    "on par with AdamW in arXiv 2310.10195; weights are rounded to bf16 at each step, a step "
    "takes {} samples, gradients are not clipped; needs lomo-optim"
)
_FP16: Final = Way(1, ("precision.deprecated_fp16=true",), "sets DS_ALLOW_DEPRECATED_FP16=1")
_CASTING = "0.19.1"
_CASTS: Final = Way(1, (f"software.deepspeed={_CASTING}",), "makes adapters fp16")
"""An engine under which ZeRO-3 trains adapters in fp16, with loss scaling (`fit/states`)."""
_LORA: Final = Way(
    4, ("method=lora",), "learns less than full training, and forgets less (arXiv 2405.09673)"
)


def _intent(facts: Facts) -> Iterator[Kind]:
    """Changes to the spec by kind, the smallest of each kind first."""
    yield from ([each] for each in _losses(facts))
    yield [*_sharded(facts), *_shardable(facts)]
    yield from ([each] for each in _budgets(facts))
    yield from ([each] for each in _pins(facts))
    yield [_INPUTS_AWAY]
    yield from _groups(facts)
    if facts.spec.method.full is not None:
        yield [_PAGED, _ADAFACTOR]
        yield _PURE if _trains_in_bf16(facts) else ()
        yield _stepped_in_backward(facts)
    yield _batches(facts)
    yield [_FP16] if _is_old(facts) else []
    yield [_CASTS] if _casts_otherwise(facts) else []
    yield _shorter(facts)
    yield [_LORA] if facts.spec.method.full is not None else []
    yield from ([each] for each in _qlora(facts))


def _freeing(facts: Facts) -> Iterator[Kind]:
    """Changes if no layout can run: to pins, the engine, devices, or the optimizer."""
    yield from ([each] for each in _pins(facts))
    if facts.spec.engine is not None:
        yield [Way(0, ("engine=null",), "the search chooses the engine")]
    if facts.selection.count > 1:
        yield [Way(1, ("devices.count=1",), "one device does the work of all; the rest stay idle")]
    if facts.spec.train.optimizer.name in STEPS_IN_BACKWARD:
        yield [Way(1, ("train.optimizer.name=adamw",), "gradients and moments take their memory")]


def _losses(facts: Facts) -> Kind:
    return [
        way
        for way, package in ((_BY_TRL, "trl"), (_BY_LIGER, "liger-kernel"))
        if package not in facts.versions
    ]


def _sharded(facts: Facts) -> Kind:
    asked = facts.pinned("parallel.engine", facts.spec.engine)
    if asked not in (None, "fsdp"):
        return []
    packed = facts.spec.method.qlora is not None
    every = (_FSDP_OF_PACKED, _FSDP_OF_PACKED_BY_PEFT, _FSDP_OF_PACKED_BY_TRL)
    released = every if packed else ()
    return [*([_FSDP] if asked is None else []), *released]


def _shardable(facts: Facts) -> Kind:
    """Plain AdamW on several devices, if another optimizer was chosen for full training."""
    found = decided(facts) if facts.spec.method.full and facts.selection.count > 1 else None
    return [_SHARDABLE] if found and found[1].optimizer.name != "adamw" else []


def _budgets(facts: Facts) -> Iterator[Way]:
    for name, what in (("gpu_memory", "device"), ("host_memory", "host")):
        if getattr(facts.spec.budget, name) is not None:
            yield Way(0, (f"budget.{name}=null",), f"the run may take the whole {what}")


def _pins(facts: Facts) -> Iterator[Way]:
    """Each pin of the spec, replaced by the value that would be decided without it."""
    for path, pin in facts.pins.items():
        if pin.author == "spec" and (value := unpinned(facts, path)) not in (None, pin.value):
            yield Way(0, (f"pin.{path}={json.dumps(plain(value))}",), "instead of your pin")


def _groups(facts: Facts) -> Iterator[Kind]:
    """Sequences or layers that several ranks of a node share, the fewest ranks first."""
    devices = facts.cluster.nodes[0].accelerators[0].count
    for slot, what in (("parallel.sequence", "sequence"), ("parallel.tensor", "layer")):
        if slot not in facts.pins:
            cost = f"no loss in quality: ranks share each {what}"
            ways = [each for each in (2, 4, 8) if devices % each == 0]
            yield [Way(0, (f"pin.{slot}={each}",), cost) for each in ways]


_BATCHES: Final = (16, 8, 4, 2, 1)


def _stepped_in_backward(facts: Facts) -> Kind:
    """AdaLOMO, with a step for each micro batch."""
    if facts.selection.count > 1 or facts.spec.train.optimizer.name in STEPS_IN_BACKWARD:
        return []
    given = facts.pinned("batch.global", facts.spec.batch.global_)
    name = "train.optimizer.name=adalomo"
    if given is not None:
        return [Way(2, (name,), _IN_BACKWARD.format(given))]
    return [Way(2, (name, f"batch.global={n}"), _IN_BACKWARD.format(n)) for n in _BATCHES]


def _batches(facts: Facts) -> Kind:
    """Fewer samples per step, where all of them are on the device together.

    So are those of an optimizer that steps at each micro batch, and the answers that are generated.
    """
    answered = facts.spec.objective.answered
    if answered is None and facts.spec.train.optimizer.name not in STEPS_IN_BACKWARD:
        return []
    group = facts.pinned("generation.samples", answered.samples) if answered else 1
    given = facts.pinned("batch.global", facts.spec.batch.global_) or _BATCHES[0] + 1
    cost = "a step takes {} samples; smaller steps are noisier"
    fewer = [n for n in _BATCHES if n < given and n % group == 0]
    return [Way(1, (f"batch.global={n}",), cost.format(n)) for n in fewer]


def _trains_in_bf16(facts: Facts) -> bool:
    """Whether products take weights in bf16: others scale the loss, or convert each weight."""
    found = decided(facts)
    return found is not None and found[1].precision.compute == "bf16"


def _is_old(facts: Facts) -> bool:
    """Whether DeepSpeed must be allowed to use fp16 on one of the devices."""
    old = any((d.compute_capability or (9, 0)) < (7, 0) for d in facts.devices.values())
    return old and not facts.spec.precision.deprecated_fp16


def _casts_otherwise(facts: Facts) -> bool:
    asked = facts.versions.get("deepspeed")
    is_newer = asked is None or Version(asked) > Version(_CASTING)
    return facts.spec.method.lora is not None and is_newer


def _shorter(facts: Facts) -> Kind:
    """Shorter samples, down to an eighth of the spec's length."""
    sequence = facts.spec.data.sequence or 0
    parts = ((3, 4), (1, 2), (1, 4), (1, 8)) if sequence >= _SHORTEST else ()
    lengths = [sequence * some // of for some, of in parts]
    return [
        Way(3, (f"data.sequence={n}",), f"texts are truncated to {n:,} tokens") for n in lengths
    ]


_SHORTEST = 64
"""Tokens of a sample; nothing shorter is suggested."""


def _qlora(facts: Facts) -> Iterator[Way]:
    """QLoRA: the spec's adapter over a 4-bit base."""
    method = facts.spec.method
    if method.qlora is not None:
        return
    setting = with_base(method, "qlora")
    way = Way(4, (setting,), "as good as 16-bit LoRA in arXiv 2305.14314; needs bitsandbytes")
    yield way
    if _is_old(facts):
        yield _both(way, _FP16)


def _hardware(facts: Facts) -> tuple[Kind, Kind]:
    """More devices of the same kind, and one larger device."""
    group = facts.cluster.nodes[0].accelerators[0]
    more = [f"{group.device}-x{group.count * factor}" for factor in (2, 4, 8)]
    larger = ("rtx-3090-x1", "v100-32g-x1", "a100-40g-x1", "a100-80g-x1", "h200-x1", "a100-80g-x8")
    return list(_on(more, "more devices")), list(_on(larger, "other devices"))


def _on(names: Iterable[str], cost: str) -> Iterator[Way]:
    for name in names:
        try:
            cluster(name)
        except UnknownName:
            continue
        yield Way(5, (f"hardware={name}",), cost)
