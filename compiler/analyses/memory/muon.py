"""DeepSpeed's Muon: momenta of whole matrices, their orthogonalisation, and Adam for the rest.

A parameter of two or more dimensions is Muon's, unless its name holds `embed` or `lm_head`
(deepspeed 0.18.7 to 0.19.8 `__init__.py`, `set_optimizer_flags`); each half is a parameter group of
its own, so that ZeRO cuts each into parts for itself. A rank orthogonalises whole every matrix of
which it owns a piece, with momenta of the gradients' dtype (`runtime/zero/stage_1_and_2.py`,
`get_flat_partition`; `runtime/zero/muon/original_muon.py`, `muon_update`). Newton-Schulz is counted
as written; torch.compile, which wraps it, fuses some of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Final, NamedTuple

from packaging.version import Version

from tunec.compiler.analyses.memory.modules import adapter_shapes
from tunec.compiler.analyses.memory.partitions import NO_PARTITION, Partition, part_of
from tunec.compiler.analyses.memory.trained_tensors import in_order
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Module

_OF_ADAM: Final = ("embed", "lm_head")
_STAGES_MOMENTUM: Final = Version("0.19.7")
"""The first release that writes new momenta beside the old ones until a step is known to count
(`runtime/zero/stage_1_and_2.py`, `_muon_staging_momentum`)."""
INLINE_ADAM_UNTIL: Final = Version("0.19.6")
"""Releases before step the other half in Python (`original_muon.py`, `adam_update`): both moments
corrected, a root and its sum or quotient, each in fp32."""
_CACHED_BYTES: Final = 256 * 1024 * 1024
"""Gathers up to this size leave their buffers (0.19.8 `runtime/zero/stage3.py`,
`_muon_allgather_max_cached_bytes`)."""


class Matrix(NamedTuple):
    """One tensor that Muon orthogonalises; of more than two dimensions, several matrices."""

    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Elements of the whole tensor."""
        return prod(self.shape)

    @property
    def sides(self) -> tuple[int, int, int]:
        """The number of matrices, and their two sides, the shorter first.

        A convolution's weight counts as one matrix (`muon_update`).
        """
        first, *others = self.shape
        if len(self.shape) == 4:
            return 1, *_sorted(first, prod(others))
        return prod(self.shape[:-2]), *_sorted(*self.shape[-2:])


def _sorted(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


class Halves(NamedTuple):
    """The elements of a model that Muon and Adam update."""

    matrices: int
    rest: int
    largest: Matrix | None
    """The matrix whose update needs most memory; None: Muon updates nothing."""
    widest: int
    """Elements of that matrix."""
    own: Partition
    """The part of the rank that needs most at stages 1 and 2, of both halves together."""
    own_matrices: int
    """Elements of all matrices of which that rank owns a piece."""


@cached(1024)
def halves(workload: Workload, ranks: int) -> Halves:
    """Split the trained tensors, and find the rank that needs most memory in its step.

    That is 6 bytes per element of its matrices (momentum, its copy, the update) besides 2 of each
    of its tensors.
    """
    tensors = _tensors(workload)
    matrices = _in_groups(tensors)
    sizes = [each.elements for each in matrices]
    others = [each for each in tensors if isinstance(each, int)]
    mine, rest = _parts(sizes, ranks), _parts(others, ranks)
    rank = max(range(ranks), key=lambda each: 4 * mine[each].elements + rest[each].elements)
    own, beside = mine[rank], rest[rank]
    everything = sum(sizes) + sum(others)
    both = Partition(
        rank, own.elements + beside.elements, max(own.piece, beside.piece), everything, own.part
    )
    largest = max(matrices, key=lambda each: working(each, 2), default=None)
    widest = largest.elements if largest else 0
    return Halves(sum(sizes), sum(others), largest, widest, both, own.elements)


def _in_groups(tensors: Iterable[Matrix | int]) -> list[Matrix]:
    """Muon's half in the order of its group: by shape, the largest first (`MuonWithAuxAdam`)."""
    return sorted((each for each in tensors if isinstance(each, Matrix)), reverse=True)


def _parts(sizes: Sequence[int], ranks: int) -> list[Partition]:
    ends = list(accumulate(sizes))
    if not ends:
        return [NO_PARTITION] * ranks
    part = -(-ends[-1] // ranks)
    filled = -(-ends[-1] // part)
    found = [part_of(ends, rank, part) for rank in range(filled)]
    return found + [NO_PARTITION] * (ranks - filled)


def _tensors(workload: Workload) -> list[Matrix | int]:
    """Every trained tensor in the model's order: a matrix for Muon, or the elements of Adam's."""
    found: list[Matrix | int] = []
    for module, _ in in_order(workload.adapted):
        found += [_tensor(module, shape) for shape in adapter_shapes(workload, module)]
        found += [module.shape[0]] * workload.adapter.dora
    for module, _ in in_order(workload.trained):
        found.append(_tensor(module, module.shape))
        found += [module.bias] * (module.bias > 0)
    return found


def _tensor(module: Module, shape: tuple[int, ...]) -> Matrix | int:
    if len(shape) < 2 or any(word in module.path.lower() for word in _OF_ADAM):
        return prod(shape)
    return Matrix(shape)


def has_convolutions(workload: Workload) -> bool:
    """Whether Muon would get a weight of four dimensions."""
    return any(len(each.shape) == 4 for each in _tensors(workload) if isinstance(each, Matrix))


def working(matrix: Matrix | None, gradient: int) -> int:
    """The peak of bytes during one update, including the update itself.

    `gradient`: bytes of one of its elements. Measured on meta tensors over deepspeed 0.19.8's
    `muon_update` (`tests/analyses/memory/test_muon.py`): the blend of momentum and its choice; then
    in fp16 two copies of the matrix and four of its Gram matrix, or one and seven.
    """
    if matrix is None:
        return 0
    number, shorter, longer = matrix.sides
    gram, whole = shorter**2, shorter * longer
    blended = (5 if gradient == 2 else 2 * gradient) * whole
    if shorter == longer:
        return number * max(blended, 4 * whole + 8 * gram)
    return number * max(blended, 4 * whole + 8 * gram, 2 * whole + 14 * gram)


def momenta(version: Version | None, found: Halves, stage: int, ranks: int, gradient: int) -> float:
    """Bytes of momenta and of Adam's two fp32 moments on one rank.

    Without ZeRO all are fp32, like the parameters that are updated.
    """
    adam = 8 * found.rest
    if stage == 0:
        return 4.0 * found.matrices + adam
    if stage == 3:
        return (gradient * found.matrices + adam) / ranks
    copies = 1 if version is not None and version < _STAGES_MOMENTUM else 2
    return copies * gradient * found.own_matrices + adam / ranks


def operations(workload: Workload) -> float:
    """Operations of one orthogonalisation of all matrices, summed over the ranks.

    Five iterations over the Gram matrix and four products with the matrix itself; on a square one
    all products are with itself (deepspeed 0.19.8 `original_muon.py`,
    `zeropower_via_gram_newtonschulz`).
    """
    return sum(_operations(*each.sides) for each in _in_groups(_tensors(workload)))


def _operations(number: int, shorter: int, longer: int) -> float:
    if shorter == longer:
        return number * 5 * 3 * 2.0 * shorter**3
    return number * (4 * 2.0 * shorter**2 * longer + 14 * 2.0 * shorter**3)


class Gathers(NamedTuple):
    """The tensors that stage 3 gathers to orthogonalise, in bytes."""

    kept: float
    """Buffers that are kept between steps."""
    highest: Mapping[str, float]
    """By name, at the moment that needs most besides the buffers."""


@cached(1024)
def gathers(workload: Workload, ranks: int, bucket: int, gradient: int) -> Gathers:
    """Follow stage 3 through Muon's half, as many matrices at a time as fit the reduce bucket.

    deepspeed 0.19.8 `runtime/zero/stage3.py`: `_apply_muon_to_accumulated_grads` gathers gradients,
    `_muon_update_sub_group` momenta; each rank updates one matrix of a round, and exchanges it in
    buffers as large as the round's largest for every rank, unless all are alike.
    """
    kept: dict[int, float] = {}
    highest: Mapping[str, float] = {}
    before = 0.0
    for chunk in _chunks(_in_groups(_tensors(workload)), bucket):
        size = sum(each.elements for each in chunk)
        buffers = gradient * (size + size / ranks) if ranks > 1 else 0.0
        if sum(kept.values()) + buffers <= _CACHED_BYTES:
            kept[size] = buffers
        of_chunk = _of_chunk(chunk, ranks, gradient, 0.0 if size in kept else buffers)
        # a loop's variable holds the gradients of the chunk before
        moments = [{**terms, "earlier gradients": before} for terms in of_chunk]
        before = float(gradient * size) if ranks > 1 else 0.0
        highest = max([highest, *moments], key=lambda terms: sum(terms.values()))
    return Gathers(sum(kept.values()), highest)


def _chunks(matrices: Iterable[Matrix], bucket: int) -> Iterator[list[Matrix]]:
    chunk: list[Matrix] = []
    filled = 0
    for each in matrices:
        if chunk and filled + each.elements > bucket:
            yield chunk
            chunk, filled = [], 0
        chunk.append(each)
        filled += each.elements
    if chunk:
        yield chunk


def _of_chunk(
    chunk: Sequence[Matrix], ranks: int, gradient: int, buffers: float
) -> Iterator[dict[str, float]]:
    """The moments of one chunk; `buffers`: of a gather that does not keep them."""
    whole = float(gradient * sum(each.elements for each in chunk))
    held = {"own momenta": whole / ranks}
    if ranks > 1:
        held |= {"whole gradients": whole, "whole momenta": whole}
        yield {**held, "gathering buffers": buffers}
    before = 0.0
    for begin in range(0, len(chunk), ranks):
        round_ = chunk[begin : begin + ranks]
        largest = max(round_, key=lambda each: working(each, gradient))
        yield {**held, "updates": before, "orthogonalisation": float(working(largest, gradient))}
        before = float(gradient * largest.elements)
        if len(round_) < ranks or len({each.shape for each in round_}) > 1:
            widest = max(each.elements for each in round_)
            exchanged = float(gradient * widest * (2 * ranks + 2))
            yield {**held, "updates": before, "exchanged matrices": exchanged}
