"""The elements that ZeRO stage 3 has gathered at each visit of a module (see `fetches`)."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple


class Visit(NamedTuple):
    """A module in the order of a step, with its parameters."""

    layer: int
    own: tuple[int, ...] = ()
    """Parameters that are gathered for it."""
    under: tuple[int, ...] = ()
    """Its parameters and those of all modules in it."""
    is_leaf: bool = False
    is_around: bool = False
    """Whether the next module is inside of it."""
    saves: frozenset[int] = frozenset()
    """Parameters of which a kept graph saves views from here on."""
    frees: frozenset[int] = frozenset()
    """Parameters whose views are freed at its end."""
    ends: frozenset[int] = frozenset()
    """Parameters that are released at its end, however soon they are needed again."""


class Sizes(NamedTuple):
    """Elements: the most that are gathered, the distance of reuse, a prefetch, what stays whole."""

    most: int
    distance: int
    bucket: int
    persistent: int


class Moment(NamedTuple):
    """Elements at one visit."""

    whole: int
    """While the module runs, with buffers."""
    beside: int
    """While its last parameter is copied out of its buffer, without the buffers."""
    buffers: int
    """In the buffers."""


class _Buffers:
    """Buffers into which several parameters are gathered at once.

    All are copied out when the first is needed, and the buffer is freed when the last is visited:
    each has a handle that holds it (`AllGatherCoalescedHandle`, `InflightParamRegistry`).
    """

    def __init__(self, elements: Sequence[int]) -> None:
        self.elements = elements
        self.waiting: dict[int, set[int]] = {}
        """For each parameter not yet visited, the unvisited parameters of its buffer."""
        self.opened: dict[int, tuple[set[int], int]] = {}

    def gather(self, parameters: Sequence[int]) -> int:
        """Gather parameters together; a single one needs no buffer."""
        if len(parameters) > 1:
            group = set(parameters)
            self.waiting.update((each, group) for each in parameters)
        return _sum(self.elements, parameters)

    def visit(self, parameters: Iterable[int]) -> int:
        """Copy the parameters that are needed; returns the elements of all buffers meanwhile."""
        for each in parameters:
            group = self.waiting.pop(each, None)
            if group is not None:
                self.opened.setdefault(id(group), (group, _sum(self.elements, group)))
                group.discard(each)
        meanwhile = self.held
        self.opened = {key: each for key, each in self.opened.items() if each[0]}
        return meanwhile

    @property
    def held(self) -> int:
        """Elements of all buffers, besides the parameters that were copied out of them."""
        return sum(size for _, size in self.opened.values())


def moments_of(order: Sequence[Visit], elements: Sequence[int], sizes: Sizes) -> Iterator[Moment]:
    """Gathered elements when each module runs."""
    distances, buffers = _distances(order, elements), _Buffers(elements)
    awaited = deque((each, step) for step, visit in enumerate(order) for each in visit.own)
    reached = [-1] * len(elements)
    there: set[int] = set()
    saved: set[int] = set()
    left: set[int] = set()
    """Released while a view of them was saved."""
    count = 0
    for step, visit in enumerate(order):
        count += buffers.gather([each for each in visit.own if each not in there])
        there.update(visit.own)
        saved |= visit.saves
        still = _sum(elements, left)
        meanwhile, beside = buffers.visit(visit.own), count + still
        for _ in range(sum(reached[each] < step for each in visit.own)):
            each, at = awaited.popleft()
            reached[each] = at
        room, taken, ahead = min(sizes.most - count, sizes.bucket), 0, list[int]()
        while awaited and taken < room:
            each, at = awaited.popleft()
            reached[each] = at
            if each not in there:
                there.add(each)
                ahead.append(each)
                taken += elements[each]
        count += buffers.gather(ahead)
        yield Moment(count + still + buffers.held, beside, meanwhile)
        saved -= visit.frees
        left -= visit.frees
        for each, distance in zip(visit.own, distances[step], strict=True):
            if reached[each] <= step and distance >= sizes.distance:
                there.discard(each)
                count -= elements[each]
                left.update({each} & saved)
        gone = visit.ends & there
        there -= gone
        count -= _sum(elements, gone)
        left |= gone & saved


def _distances(order: Sequence[Visit], elements: Sequence[int]) -> list[list[float]]:
    """For each visit's parameters, the elements that are visited before their next use."""
    held = [0 if visit.is_leaf else _sum(elements, visit.own) for visit in order]
    passed = [0, *accumulate(held)]
    passed_under = [0, *accumulate(_sum(elements, visit.under) for visit in order)]
    next_own, next_under = [len(order)] * len(elements), [len(order)] * len(elements)
    found: list[list[float]] = []
    for step in range(len(order) - 1, -1, -1):
        visit = order[step]
        met, far = (next_under, passed_under) if visit.is_leaf else (next_own, passed)
        ends = ((met[each], far[met[each]] - far[step + 1]) for each in visit.own)
        found.append([inf if at == len(order) else distance for at, distance in ends])
        for each in visit.under:
            next_under[each] = step
        for each in () if visit.is_leaf else visit.own:
            next_own[each] = step
    return found[::-1]


def _sum(elements: Sequence[int], places: Iterable[int]) -> int:
    return sum(elements[each] for each in places)
