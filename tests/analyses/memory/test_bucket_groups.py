"""What is counted for many ranks at once is what rank by rank gives."""

from itertools import accumulate, groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from tunec.compiler.analyses.memory.bucket_groups import Copied, copied
from tunec.compiler.analyses.memory.partitions import _differing_ranks, _largest, part_of
from tunec.compiler.analyses.memory.trained_tensors import Tensor


def pieces_of(stretches, part):
    for begin, end in stretches:
        cuts = [begin, *range((begin // part + 1) * part, end, part), end]
        yield from ((one // part, other - one) for one, other in pairwise(cuts))


def rank_by_rank(stretches, bucket, part, apart):
    """deepspeed 0.19.8 runtime/zero/stage_1_and_2.py `average_tensor`: piece after piece."""
    most, largest, group, pieces, own = 0, 0, 0, 0, 0
    for rank, run in groupby(pieces_of(stretches, part), key=lambda piece: piece[0]):
        sizes = [elements for _, elements in run]
        group, pieces = group + sum(sizes), pieces + 1
        if rank == apart:
            own, pieces = max(own, *sizes), pieces + len(sizes) - 1
        largest = max(largest, group)
        if pieces > 1:
            most = max(most, group)
        if group > bucket:
            group, pieces = 0, 0
    return Copied(most, largest, own)


@st.composite
def stretches(draw):
    """Neighbouring stretches of the parameters, in the model's order or the opposite."""
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=6))
    ends = [*accumulate(sizes, initial=draw(st.integers(0, 50)))]
    found = list(pairwise(ends))
    return found[::-1] if draw(st.booleans()) else found


@given(stretches(), st.integers(1, 100), st.integers(1, 40), st.none() | st.integers(0, 30))
def test_groups_of_many_ranks_are_those_of_one_after_the_other(found, bucket, part, apart):
    assert copied(found, bucket, part, apart) == rank_by_rank(found, bucket, part, apart)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(1, 200))
def test_the_rank_with_the_largest_step_is_found_among_few_ranks(sizes, ranks):
    tensors = tuple(Tensor(size, None, ends_feed_forward=False) for size in sizes)
    ends = list(accumulate(sizes))
    if ends[-1] == 0:
        return
    part = -(-ends[-1] // ranks)
    every = (part_of(ends, rank, part) for rank in range(-(-ends[-1] // part)))
    asked = max(every, key=lambda each: 2 * each.elements + max(8 * each.piece, 6 * part))
    assert next(_largest(tensors, ranks, in_pass=True, staying=None, sums=False)) == asked


def test_a_million_ranks_are_not_looked_at_one_by_one():
    assert len(_differing_ranks([10**12, 10**12 + 5], 10**6)) < 7
    assert copied([(0, 10**15)], 10**9, 10, 3).largest == 10**9 + 10
