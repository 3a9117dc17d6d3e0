"""Measure what each kind of layer keeps and works in, by forward and backward passes on meta.

A model of a few layers runs at a few lengths, and every storage is followed to the layer that made
it. Bytes are polynomials of the length: fitted exactly at some lengths, and verified at others.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct

from tunec.compiler.tracing.live.derivation.curves import TOLERANCE, Lengths, NoCurve, fitted
from tunec.compiler.tracing.live.derivation.text_pass import (
    WAYS,
    DoesNotRun,
    Pass,
    Subject,
    asks_of,
    run,
)
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.frozen import replace
from tunec.schemas.models.layer_measures import ALONE, Measured

_SHARED: Final = 0.05
"""The largest share of a layer's kept bytes that samples may have in common without a
measurement."""

_HALF: Final = 2
_FEW: Final = (64, 128)
"""Lengths in tokens that show whether a class takes one step per token."""
_STEP: Final = 16
"""Storages that such a class makes and frees for each additional token."""


class Found(Struct, frozen=True):
    """The measurements of one layer."""

    measured: tuple[Measured, ...]
    attends: bool


class Measures(Struct, frozen=True):
    """The measurements of a model."""

    layers: list[Found]
    around: tuple[Measured, ...]
    unpacked: str
    """Why the passes do not run over packed weights; "": they do."""
    plain_loss: bool
    """Whether the loss uses the logits as they come, neither shifted nor in fp32."""
    wide_stream: bool
    """Whether layers with 16-bit weights return fp32 under autocast."""
    streams: int
    """The number of states of the hidden width that a layer returns in parallel."""
    calls: Mapping[str, int]
    """How often each token passes a product, for products that it passes several times."""
    beside: frozenset[str]
    """Products that work on an encoder's input that is not text."""
    reached: frozenset[str]
    """Modules and parameters that get a gradient."""
    window: int
    """Tokens to whose multiple the class pads each text; 0: it pads none."""


def measures(subject: Subject, places: Mapping[int, int]) -> Measures:
    """Measure the layers at some places, and the operations around them, in every way.

    Each place has the number of positions that its layers work on, 0 for the tokens of the text.

    Ways over packed weights are left out if the class does not run over them. Raises Untraceable if
    a pass does not run, or bytes follow no curve of the length or of the number of samples.
    """
    subject = replace(subject, asks=asks_of(subject, _FEW[0]))
    lengths = Lengths.beside(subject.model, subject.active, short=_steps(subject))
    if subject.longest and not subject.source:
        lengths = lengths.within(subject.longest, subject.model, subject.active)
    if lengths.brief:
        with suppress(NoCurve):
            return _at_lengths(subject, places, lengths)
        lengths = lengths.without_shortest()
    for more in (Lengths.with_more, Lengths.with_many):
        with suppress(NoCurve):
            return _at_lengths(subject, places, lengths)
        lengths = more(lengths, subject.model, subject.active)
    return _at_lengths(subject, places, lengths)


def _at_lengths(subject: Subject, places: Mapping[int, int], lengths: Lengths) -> Measures:
    layers: list[list[Measured]] = [[] for _ in places]
    source = bool(subject.source) or lengths.brief
    around: list[Measured] = []
    whole, mixed = (run(subject, way, lengths.aligned[0]) for way in WAYS[:2])
    if whole.handed and subject.model.config.is_encoder_decoder:
        raise Untraceable("its layers hand on more than their states, which no account counts")
    shares, many = False, _together(subject, lengths.unaligned[0], places)
    unpacked = _unpacked(subject, lengths.unaligned[0])
    ways = [each for each in WAYS if not (each.packed and unpacked)]
    for each, count in ((way, count) for way in ways for count in dict.fromkeys((many, 1))):
        passes = {length: run(subject, each, length, samples=count) for length in lengths.all}
        name = each.named(eager=subject.eager) + ALONE * (count < many)
        if each is WAYS[0]:
            shares = many == 1 and _shares(subject, passes, lengths, places)
        twice = {s: run(subject, each, s, samples=2) for s in lengths.all} if shares else {}
        for own, (at, of) in zip(layers, places.items(), strict=True):
            sizes = (
                {s: p.saved.get(at, 0) / (of or s) / count for s, p in passes.items()},
                {s: p.working.get(at, 0) / (of or s) / count for s, p in passes.items()},
                {s: p.forward.get(at, 0) / (of or s) / count for s, p in passes.items()},
                {s: (2 * passes[s].saved[at] - p.saved[at]) / (of or s) for s, p in twice.items()},
            )
            curves = (fitted(each, lengths, name, source=source) for each in sizes if each)
            own.append(Measured(name, *curves))
        outer = {s: p.around / s / count for s, p in passes.items()}
        waiting = {s: p.passing / s / count for s, p in passes.items()}
        passing = fitted(waiting, lengths, name, source=source) if any(waiting.values()) else ()
        around.append(Measured(name, fitted(outer, lengths, name, source=source), forward=passing))
    found = [Found(tuple(m), at in whole.attending) for m, at in zip(layers, places, strict=True)]
    return Measures(
        found,
        tuple(around),
        unpacked,
        plain_loss=whole.plain_loss,
        wide_stream=mixed.stream > _HALF,
        streams=mixed.streams,
        calls=whole.calls,
        beside=whole.beside,
        reached=whole.reached,
        window=lengths.window,
    )


def _steps(subject: Subject) -> bool:
    """Whether a class takes one step per token, as state spaces do without their own kernels."""
    few, more = (run(subject, WAYS[0], length).events for length in _FEW)
    return more - few >= _STEP * (_FEW[1] - _FEW[0])


def _unpacked(subject: Subject, length: int) -> str:
    """Why a class runs over a frozen base but not over a packed one; "": it runs over both.

    Some classes read a layer's weight themselves, which bitsandbytes has packed: Gemma 3n clamps
    it, LongCat's router multiplies with it.
    """
    plain, packed = (
        next(w for w in WAYS if not w.trained and w.packed == asked) for asked in (False, True)
    )
    try:
        run(subject, packed, length)
    except DoesNotRun as reason:
        run(subject, plain, length)
        return str(reason.__cause__).strip().partition("\n")[0]
    return ""


def _together(subject: Subject, length: int, places: Iterable[int]) -> int:
    """Samples of the measured passes: two if a single sample takes less than each of several.

    Slices of a single sample are contiguous, so some copies are not made.
    """
    one, two = (run(subject, WAYS[0], length, samples=count) for count in (1, 2))
    counts = [(one.saved.get(at, 0), two.saved.get(at, 0)) for at in places]
    once, twice = max(counts, key=lambda each: (each[1] - 2 * each[0]) / max(each[1], 1))
    if twice - 2 * once <= TOLERANCE * twice:
        return 1
    three = run(subject, WAYS[0], length, samples=3)
    evens = (abs(three.saved[at] - 1.5 * two.saved[at]) / three.saved[at] for at in places)
    if max(evens) > TOLERANCE:
        raise Untraceable(f"two samples keep {twice} bytes where one keeps {once}")
    return 2


def _shares(
    subject: Subject, passes: Mapping[int, Pass], lengths: Lengths, places: Iterable[int]
) -> bool:
    """Whether samples have more in common than can be attributed to each of them.

    Passes of one, two and three samples must lie on a line, or two must take twice as much as one.
    """
    length = lengths.unaligned[0]
    one = passes[length]
    two = run(subject, WAYS[0], length, samples=2)
    counts = [(one.saved.get(at, 0), two.saved.get(at, 0)) for at in places]
    if all(2 * once - twice < _SHARED * twice for once, twice in counts):
        return False
    three = run(subject, WAYS[0], length, samples=3)
    for at, (once, twice) in zip(places, counts, strict=True):
        thrice = three.saved.get(at, 0)
        if abs(thrice - (2 * twice - once)) > TOLERANCE * thrice:
            told = f"one, two and three samples keep {once}, {twice} and {thrice} bytes"
            raise Untraceable(f"{told}, which lie on no line")
    return True
