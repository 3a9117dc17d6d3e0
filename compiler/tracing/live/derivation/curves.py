"""Bytes as curves of a sample's length: fitted at some lengths, and verified at others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, count, pairwise
from typing import Any, Final, Self

import torch
from msgspec import Struct

from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.frozen import replace
from tunec.schemas.models.layer_measures import FILLED, Curve, filled_up

_ALIGNED: Final = 768
"""The first of two lengths in tokens that are multiples of every known chunk size."""
_UNALIGNED: Final = (1000, 1777, 2111)
"""Lengths in tokens that are multiples of no chunk size."""
_MORE: Final = (1411, 2605)
"""Two more unaligned lengths, for layers that keep a state."""
_MANY: Final = (900, 1100, 1290, 1553, 1925, 2250, 2330)
"""More unaligned lengths, for layers whose peak depends on how much of the last chunk is filled."""
_SHORTER: Final = (2, 8)
"""The divisors of a class's longest sequence for lengths of short samples."""
_SHARE: Final = 32
"""The divisor of all lengths for a class that takes one step per token."""
TOLERANCE: Final = 1e-3
"""The largest relative error of a curve at a length to which it was not fitted."""
_CHUNKS: Final = (64, 128, 256)
"""Chunk sizes in tokens of layers with a state space or linear attention."""
_SAMPLES: Final = 2
"""Samples per measured pass, for classes in which a single sample takes less than each of
several."""
_UNKNOWN: Final = 5
"""The number of coefficients of a curve with a state."""
_TERMS: Final[Mapping[str, Callable[[int], float]]] = {
    "key": lambda length: length,
    "filled": lambda length: filled_up(length, FILLED),
    "sample": lambda length: 1 / length,
}
"""What coefficients of a curve of pairs of tokens are multiplied with."""
_FORMS: Final = (("key",), ("filled",), ("key", "filled"), ("key", "sample"))
"""Those that such a curve may have besides what a token takes."""
_MOMENTS: Final = (2, 3)
"""How many moments the highest of a layer is sought among."""


class NoCurve(Untraceable):
    """The measured bytes follow no curve of the length."""


class Lengths(Struct, frozen=True):
    """Lengths of the passes in tokens.

    No length, and no number of rows that experts or two samples read of it, equals a width of a
    parameter: gradients of weights are distinguished from activations by their shape.
    """

    aligned: tuple[int, ...]
    unaligned: tuple[int, ...]
    share: int = 1
    """The divisor of all lengths."""
    brief: bool = False
    """Whether one of them is a length of the short samples that a class is made for."""
    window: int = 0
    """The number of tokens to whose multiple the class pads each text; 0: it does not."""

    @property
    def chunks(self) -> tuple[int, ...]:
        """The chunk sizes in tokens that curves may have."""
        return (self.window,) if self.window else _CHUNKS

    @property
    def all(self) -> tuple[int, ...]:
        """All lengths, the aligned ones first."""
        return (*self.aligned, *self.unaligned)

    @classmethod
    def beside(cls, model: torch.nn.Module, active: int = 1, *, short: bool = False) -> Self:
        """Lengths for a model that passes each token through `active` experts.

        `short`: for a class that takes one step per token and works on no chunks.
        """
        share, window = _SHARE if short else 1, _window(model)
        free, step = _free(model, active), (window or _CHUNKS[-1]) // share
        first = free(int(filled_up(_ALIGNED // share, step)), step)
        aligned = first, free(first + 2 * step, step)
        unaligned = tuple(free(at // share, 2) for at in _UNALIGNED)
        return cls(aligned, unaligned, share, window=window)

    def within(self, longest: int, model: torch.nn.Module, active: int) -> Self:
        """These lengths, with two that a class takes whose longest sequence is before the first.

        What a sample has beside its text, as DeBERTa's layers have copies of a table of relative
        positions, is much of a short sample and little of a long one; scores are the reverse.
        A sample that is padded to a window is not short.
        """
        if longest >= self.aligned[0] or self.window:
            return self
        free = _free(model, active)
        short = tuple(free(longest // part + 1, 2) for part in _SHORTER)
        return replace(self, unaligned=(*self.unaligned, *short), brief=True)

    def without_shortest(self) -> Self:
        """These lengths without the shortest one, whose peak may be at a moment of its own."""
        return replace(self, unaligned=self.unaligned[:-1])

    def with_more(self, model: torch.nn.Module, active: int) -> Self:
        """These lengths with one more aligned and two more unaligned ones."""
        free, step = _free(model, active), self.chunks[-1] // self.share
        last = free(self.aligned[-1] + step, step)
        more = tuple(free(at // self.share, 2) for at in _MORE)
        return replace(self, aligned=(*self.aligned, last), unaligned=(*self.unaligned, *more))

    def with_many(self, model: torch.nn.Module, active: int) -> Self:
        """These lengths with many more unaligned ones."""
        free = _free(model, active)
        many = tuple(free(at // self.share, 2) for at in _MANY)
        return replace(self, unaligned=(*self.unaligned, *many))


def _window(model: Any) -> int:
    """The number of tokens to whose multiple a class pads each text; 0: it does not.

    Longformer and LED pad to the widest window of a layer, PEGASUS-X, which has global tokens
    beside its blocks, to a block (transformers 5.23 `LongformerModel._pad_to_window_size`,
    `PegasusXEncoder.forward`).
    """
    config: Any = getattr(model, "config", None)
    given = getattr(config, "attention_window", None) or 0
    if not given and hasattr(config, "num_global_tokens"):
        given = config.block_size
    return max(given) if isinstance(given, list) else int(given)


def _free(model: torch.nn.Module, active: int) -> Callable[[int, int], int]:
    """A function that finds the next length, in steps, that is not a parameter's width."""
    widths = {side for each in model.parameters() for side in each.shape}
    window = _window(model) or 1

    def free(length: int, step: int) -> int:
        rows = ((each, _rows(each, window, active)) for each in count(length, step))
        return next(each for each, read in rows if widths.isdisjoint(read))

    return free


def _rows(length: int, window: int, active: int) -> Iterator[int]:
    """The numbers of rows that layers work on for texts of a length."""
    for each in (length, -(-length // window) * window):
        yield from (each, each * active, each * _SAMPLES)


def fitted(
    sizes: Mapping[int, float], lengths: Lengths, what: str, *, source: bool = False
) -> tuple[Curve, ...]:
    """The curves whose highest goes through bytes a token at some lengths, and holds at the others.

    One, but for what is the largest of several moments. `source`: whether each sample has something
    beside its text, which is always as large. Raises Untraceable where there is none.
    """
    first, second = lengths.aligned[:2]
    line = _line(sizes, first, second)
    beside = [_beside(sizes), _beside(sizes, keys=True)] if source else []
    chunked = (_filled(sizes, lengths, line, chunk) for chunk in lengths.chunks)
    lower, upper = _line(sizes, *sorted(sizes)[:2]), _line(sizes, *sorted(sizes)[-2:])
    stated = (
        _with_state(sizes, lengths, chunk) for chunk in lengths.chunks if len(sizes) > _UNKNOWN
    )
    for curves in (
        (line,),
        *((each,) for each in beside),
        *((each,) for each in chunked),
        (lower, upper),
        *((each,) for each in stated),
        *(each for chunk in lengths.chunks for each in _moments(sizes, chunk)),
        *_scores(sizes),
    ):
        if _holds(curves, sizes):
            return curves
    told = ", ".join(f"{size:.0f} at {length}" for length, size in sorted(sizes.items()))
    raise NoCurve(f"bytes follow no curve of the length ({what}: {told} a token)")


def _line(sizes: Mapping[int, float], first: int, second: int) -> Curve:
    key = (sizes[second] - sizes[first]) / (second - first)
    if abs(key) * second < TOLERANCE * abs(sizes[second]) / 10:
        return Curve(sizes[second])
    return Curve(sizes[second] - key * second, key)


def _beside(sizes: Mapping[int, float], *, keys: bool = False) -> Curve:
    """The curve with a coefficient per token, one per sample and, if asked, one per key."""
    rows = [(1, 1 / length, *((length,) * keys)) for length in sizes]
    token, sample, *key = _least_squares(rows, [*sizes.values()])
    return Curve(token, sum(key), sample=sample)


def _filled(sizes: Mapping[int, float], lengths: Lengths, aligned: Curve, chunk: int) -> Curve:
    """Bytes of tokens and of whole chunks, by two lengths that leave the last chunk unfilled.

    A length that fills it may take other ways: no copy is made to fill it.
    """
    first, second = lengths.unaligned[:2]
    ratios = [-(-at // chunk) * chunk / at for at in (first, second)]
    rest = [sizes[at] - aligned.key * at for at in (first, second)]
    padded = (rest[0] - rest[1]) / (ratios[0] - ratios[1])
    token = rest[0] - padded * ratios[0]
    return Curve(token, aligned.key, padded, chunk, aligned.token - token - padded)


def _with_state(sizes: Mapping[int, float], lengths: Lengths, chunk: int) -> Curve:
    """Bytes of tokens, of chunks and of each sample, by least squares over more lengths."""
    rows = [(1, s, _fill(s, chunk), 1 / s, float(s in lengths.aligned)) for s in sizes]
    token, key, padded, sample, aligned = _least_squares(rows, list(sizes.values()))
    return Curve(token - padded, key, padded, chunk, aligned, sample)


def _moments(sizes: Mapping[int, float], chunk: int) -> Iterator[tuple[Curve, ...]]:
    """Curves of moments, each of which is the peak from some filled share of the last chunk on.

    Each curve is fitted to more lengths than it has coefficients.
    """
    ordered = sorted(sizes, key=lambda length: _fill(length, chunk))
    for moments in _MOMENTS:
        for cuts in combinations(range(1, len(ordered)), moments - 1):
            parts = [ordered[a:b] for a, b in pairwise((0, *cuts, len(ordered)))]
            if all(_is_proven(part, chunk) for part in parts):
                yield tuple(_moment({s: sizes[s] for s in part}, chunk) for part in parts)


def _scores(sizes: Mapping[int, float]) -> Iterator[tuple[Curve, ...]]:
    """Curves of one or two moments, by length, with terms for pairs of tokens."""
    ordered = sorted(sizes)
    for cut in range(len(ordered)):
        parts = [{s: sizes[s] for s in part} for part in (ordered[:cut], ordered[cut:]) if part]
        curves = tuple(filter(None, map(_of_scores, parts)))
        if len(curves) == len(parts):
            yield curves


def _of_scores(sizes: Mapping[int, float]) -> Curve | None:
    """Bytes of tokens and pairs, with what fills pairs up or a sample has; None: none is proven."""
    for names in _FORMS:
        rows = [(1, *(_TERMS[name](s) for name in names)) for s in sizes]
        if len(rows) > len(rows[0]):
            found = _least_squares(rows, [*sizes.values()])
            curve = Curve(**dict(zip(("token", *names), found, strict=True)))
            if _holds((curve,), sizes):
                return curve
    return None


def _is_proven(part: Sequence[int], chunk: int) -> bool:
    """Whether a moment has more lengths than coefficients."""
    return len(part) > (3 if any(_fill(length, chunk) for length in part) else 2)


def _moment(sizes: Mapping[int, float], chunk: int) -> Curve:
    """The curve with coefficients per token, for the fill of the last chunk, and per sample."""
    rows = [(1, _fill(s, chunk), 1 / s) for s in sizes]
    token, padded, sample = _least_squares(rows, list(sizes.values()))
    return Curve(token - padded, 0.0, padded, chunk, 0.0, sample)


def _fill(length: int, chunk: int) -> float:
    """The padding of the last chunk, as a share of the length."""
    return -(-length // chunk) * chunk / length - 1


def _least_squares(rows: Sequence[tuple[float, ...]], wanted: Sequence[float]) -> list[float]:
    matrix = torch.tensor(rows, dtype=torch.float64)
    scale = matrix.abs().amax(0).clamp(min=1e-12)
    asked = torch.tensor(wanted, dtype=torch.float64)
    found: list[float] = torch.linalg.lstsq(matrix / scale, asked, driver="gelsd").solution.tolist()
    return [each / by for each, by in zip(found, scale.tolist(), strict=True)]


def _holds(curves: Sequence[Curve], sizes: Mapping[int, float]) -> bool:
    return all(
        abs(max(each.at(length) for each in curves) - size) <= TOLERANCE * max(size, 1.0)
        for length, size in sizes.items()
    )
