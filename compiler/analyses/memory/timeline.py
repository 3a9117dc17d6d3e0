"""The course of a run: terms with a birth and an end, the moments of births, and their sums.

A term is a number of bytes with a name and a life. Memory can only reach its highest point where a
term is born, so the phases of a run are the births of its terms, in chronological order.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

Sizes = Mapping[str, float]
"""Bytes by name."""


class Moment(NamedTuple):
    """A point in the course of a run."""

    at: float
    name: str = ""
    """The name of the phase that begins here; empty if the moment is only a bound between
    phases."""
    layers: float = 1.0
    """The share of the layers that have run forward and are not differentiated yet."""
    evaluates: bool = False
    """Whether the samples at this moment are those of an evaluation batch."""


class Term(NamedTuple):
    """A number of bytes with a name, alive from one moment to another."""

    name: str
    bytes: int
    born: Moment
    freed: Moment
    """The last moment at which the bytes are allocated."""
    by_sample: bool = False
    """Whether the bytes are needed once for each sample of a batch."""
    by_layer: bool = False
    """Whether only the share `Moment.layers` of the bytes is allocated at a moment."""
    span: tuple[float, float] = (0.0, 1.0)
    """The range of layers, as shares, that the term belongs to: an encoder's come before its
    decoder's."""

    def at(self, moment: Moment) -> int:
        """Bytes of the term at a moment of its life."""
        if not self.by_layer:
            return self.bytes
        first, last = self.span
        return round(self.bytes * min(max(moment.layers - first, 0.0) / (last - first), 1.0))


def lasting(sizes: Sizes, born: Moment, freed: Moment) -> list[Term]:
    """Terms that do not depend on the micro batch, rounded to whole bytes."""
    return [Term(name, round(size), born, freed) for name, size in sizes.items()]


def of_samples(
    sizes: Sizes,
    born: Moment,
    freed: Moment,
    sequences: int = 1,
    *,
    span: tuple[float, float] | None = None,
) -> list[Term]:
    """Terms for each sample, which consists of `sequences` sequences of the given sizes.

    `span`: of the layers that keep them; None: no layer frees them.
    """
    layers = (False,) if span is None else (True, span)
    return [
        Term(name, round(size) * sequences, born, freed, True, *layers)
        for name, size in sizes.items()
    ]


def total(sizes: Sizes) -> int:
    """The sum of some sizes, each rounded to whole bytes."""
    return sum(map(round, sizes.values()))


class Phase(NamedTuple):
    """The memory alive at a moment; its bytes are linear in the samples of a batch."""

    moment: Moment
    fixed_bytes: int
    sample_bytes: int
    course: tuple[Term, ...]
    """All terms of the run, whether alive at the moment or not."""

    @property
    def name(self) -> str:
        """The phase's displayed name."""
        return self.moment.name

    @property
    def evaluates(self) -> bool:
        """Whether the phase's samples are those of an evaluation batch."""
        return self.moment.evaluates

    def at(self, samples: int) -> int:
        """The total bytes for a batch of `samples`."""
        return self.fixed_bytes + self.sample_bytes * samples

    def terms(self, samples: int) -> dict[str, int]:
        """Bytes by name for a batch of `samples`, without empty terms."""
        at, found = self.moment.at, dict[str, int]()
        alive = [term for term in self.course if term.born.at <= at <= term.freed.at]
        for term in sorted(alive, key=lambda term: term.by_sample):
            size = term.at(self.moment) * (samples if term.by_sample else 1)
            if size:
                found[term.name] = found.get(term.name, 0) + size
        return found


def timeline(terms: Iterable[Term]) -> tuple[Phase, ...]:
    """The phases of a run in order: all bytes alive at each moment at which a term is born."""
    course = tuple(terms)
    born = {term.born.at: term.born for term in course if term.born.name}
    places = sorted(born)
    moments = [born[place] for place in places]
    # what comes with each moment and, after the last, what never goes
    fixed, each = [0] * (len(places) + 1), [0] * (len(places) + 1)
    waiting, shared = [0] * len(places), [0] * len(places)
    for term in course:
        begin = bisect_left(places, term.born.at)
        end = bisect_right(places, term.freed.at, begin)
        if term.by_layer:
            held = waiting if term.by_sample else shared
            for index in range(begin, end):
                held[index] += term.at(moments[index])
            continue
        sums = each if term.by_sample else fixed
        sums[begin] += term.bytes
        sums[end] -= term.bytes
    return tuple(
        Phase(moment, still + once, moving + more, course)
        for moment, still, moving, more, once in zip(
            moments, accumulate(fixed), accumulate(each), waiting, shared, strict=False
        )
    )


class At:
    """The moments by name; unnamed moments are bounds between phases that only some runs have."""

    ENCODING: Final = Moment(0, "encoding ahead")
    """Captions and pictures are encoded to the model's training inputs."""
    LOADING: Final = Moment(1, "loading")
    """Each rank has loaded the weights, and FSDP has not split them yet."""
    START: Final = Moment(2)

    PROMPT: Final = Moment(10, "prompt")
    PROMPT_HEAD: Final = Moment(11, "prompt head")
    PROMPT_GATHERING: Final = Moment(12, "prompt gathering")
    GENERATION: Final = Moment(13, "generation")
    GENERATION_HEAD: Final = Moment(14, "generation head")
    GENERATION_GATHERING: Final = Moment(15, "generation gathering")
    WRITTEN: Final = Moment(15.5)
    """Answers are generated, and the tensors that were moved to the host are back."""
    SCORING_LAYERS: Final = Moment(16, "scoring layers")
    SCORING_GATHERING: Final = Moment(17, "scoring gathering")
    SCORING_BEGINS: Final = Moment(18, "scoring gathering")
    SCORING: Final = Moment(19, "scoring")
    HANDING_OVER: Final = Moment(20, "handing over")

    FORWARD: Final = Moment(30)
    FIRST_GATHERING: Final = Moment(31, "first gathering")
    TOWER: Final = Moment(31.5)
    VISION_FORWARD: Final = Moment(32, "vision forward")
    LAYERS: Final = Moment(32.5)
    GATHERING: Final = Moment(33, "parameter gathering")
    FORWARDED: Final = Moment(33.4)
    LAST_LAYER_FORWARD: Final = Moment(33.45, "last layer forward")
    """The last adapter of the last layer has run, and its casts still exist."""
    LAST_FORWARD: Final = Moment(33.5, "experts forward")
    """The last layer's experts have run, and their working memory still exists."""
    LOSS_FORWARD: Final = Moment(34, "loss forward")
    REFERENCE_FORWARD: Final = Moment(35, "reference forward")
    REFERENCE_LOSS: Final = Moment(36, "reference loss")

    LOSS_BACKWARD: Final = Moment(40, "loss backward")
    LOSS_DONE: Final = Moment(40.5)
    HEAD: Final = Moment(41, "head backward")
    NORMS: Final = Moment(42, "adapter norms")
    """DoRA computes the norms of a layer's weights."""
    HEAD_STEPPED: Final = Moment(43, "head stepped backward")
    HEAD_DONE: Final = Moment(43.5)
    ROOT_GATHERING: Final = Moment(44, "root gathering backward")
    LAST_LAYER: Final = Moment(45, "last layer backward")
    EXPANSION: Final = Moment(46, "weight expansion backward")
    EXPERTS_REPEATED: Final = Moment(46.1, "experts gathering for recomputation backward")
    """A layer's experts are gathered to be recomputed."""
    EXPERTS_GATHERING: Final = Moment(46.2, "experts gathering backward")
    """A layer's experts are gathered a second time, to be differentiated."""
    EXPERTS_GATHERED: Final = Moment(46.4)
    LAST_INNER: Final = Moment(46.5, "last experts halfway backward")
    """The second product of the experts in the last layer has its gradient."""
    LAST_EXPERTS: Final = Moment(47, "last experts backward")
    REDUCTIONS: Final = Moment(48)
    """From here on, gradients are reduced as they are computed."""
    ALL_REDUCED: Final = Moment(49)
    FIRST_SEGMENT: Final = Moment(50, "first segment backward")
    """Several layers have been recomputed together, and none of them is differentiated yet."""
    FIRST_LAYER: Final = Moment(51, "first layer backward")
    FIRST_INNER: Final = Moment(51.5, "first experts halfway backward")
    FIRST_EXPERTS: Final = Moment(52, "first experts backward")
    DECODER_EMBEDDING: Final = Moment(53, "decoder embedding backward")
    LAST_OF_ENCODER: Final = Moment(53.2, "encoder's last layer backward")
    LAYERS_DONE: Final = Moment(53.5)
    VISION_BACKWARD: Final = Moment(54, "vision backward")
    EMBEDDING: Final = Moment(55, "embedding backward")
    REDUCTION: Final = Moment(56, "gradient reduction")
    """All gradients are reduced together."""
    ORTHOGONALISATION: Final = Moment(57, "orthogonalisation after backward")

    STEP: Final = Moment(60, "optimizer step")
    EVALUATION: Final = Moment(70, "evaluation", evaluates=True)
    ANSWERS_PROMPT: Final = Moment(71, "evaluation prompt", evaluates=True)
    ANSWERS_PROMPT_HEAD: Final = Moment(72, "evaluation prompt head", evaluates=True)
    ANSWERS_PROMPT_GATHERING: Final = Moment(73, "evaluation prompt gathering", evaluates=True)
    ANSWERS: Final = Moment(74, "evaluation answers", evaluates=True)
    ANSWERS_HEAD: Final = Moment(75, "evaluation answers head", evaluates=True)
    ANSWERS_GATHERING: Final = Moment(76, "evaluation answers gathering", evaluates=True)
    SAVING: Final = Moment(80, "saving")
    MERGING: Final = Moment(81, "merging")
    END: Final = Moment(90)


def reduction(number: int, layers: float) -> Moment:
    """The moment of one reduction of gradients during the backward pass, `number` from 1."""
    return Moment(At.REDUCTIONS.at + number / 2**16, f"gradient reduction {number}", layers)
