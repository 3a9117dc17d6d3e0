"""Which parameters ZeRO stage 3 has whole at a time, in mixtures of experts.

DeepSpeed remembers the order in which a step visits modules. At each module it gathers what is not
whole, then some of what comes next, as long as fewer than `max_live_parameters` elements are whole;
a module that is done lets go of its parameters unless one is visited again within
`max_reuse_distance` elements, or was passed over by that gathering ahead (deepspeed 0.19.8
`runtime/zero/partitioned_param_coordinator.py`, `fetch_sub_module`, `__params_to_release`; the same
in 0.14.5, 0.15.4, 0.16.9, 0.17.6 and 0.18.9). The distance from a leaf module is counted through
all modules with everything that is in them, that from others through what modules hold themselves,
which is nothing for a block of experts.

The weights of all experts of a layer are one tensor, of which the grouped product saves a view.
What is let go of by `param.data = empty(0)` stays for as long as that view is saved, and is
gathered a second time for the backward pass (transformers 5.23 `integrations/moe.py`,
`_grouped_linear`; linear layers are spared by DeepSpeed's own product, which saves the parameter
itself: 0.19.8 `runtime/zero/linear.py`, `LinearFunctionForZeroStage3`). Traced.

Where a layer is recomputed within the backward pass of its last module, as torch does without
`use_reentrant`, all frozen parameters that it read go with that module, near or not, and come again
for the backward pass (0.19.3 to 0.19.8, `update_recompute_parameters`): experts in front of shared
ones are there twice, and a third time while they are copied out of a buffer. Traced.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, groupby
from math import inf, prod
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.modules import is_stack
from tunec.compiler.ir.slots import Zero
from tunec.schemas.caches import Kept
from tunec.schemas.models.architecture import Architecture, Module

_OUTSIDE: Final = -1
"""The layer of a module that is in none."""


class Live(NamedTuple):
    """Most elements that are whole at moments of a step, persistent ones left out."""

    turn: int
    """From the last module's forward pass to its backward pass."""
    layers: tuple[int, ...]
    """While each layer is recomputed and differentiated, the last one first."""
    buffers: int
    """In the buffers out of which a forward pass copies, when there is most of all."""
    beside: int
    """Whole by then."""
    reached: float
    """The share of the layers that the pass has reached by then."""
    repeated: "Again | None" = None
    """Experts that come for their layer to be recomputed; None: they are still whole."""
    again: "Again | None" = None
    """Experts that come for their backward pass; None: they are still whole."""


class Again(NamedTuple):
    """The moment in a backward pass at which most is whole as stacks of experts come."""

    buffers: int
    beside: int
    left: float
    """The share of the layers before this one."""


class _Visit(NamedTuple):
    """A module in the order of a step, with its parameters."""

    layer: int
    own: tuple[int, ...] = ()
    """Those that are gathered for it."""
    under: tuple[int, ...] = ()
    """Those of it and of all modules in it."""
    is_leaf: bool = False
    saves: frozenset[int] = frozenset()
    """Those of which a graph that is kept saves views from here on."""
    frees: frozenset[int] = frozenset()
    """Those whose views are let go of when it is done."""
    ends: frozenset[int] = frozenset()
    """Those that go when it is done, however near they are needed again."""


class _Sizes(NamedTuple):
    most: int
    distance: int
    bucket: int
    persistent: int


class _Moment(NamedTuple):
    """Elements at one visit."""

    whole: int
    """While the module runs, buffers among them."""
    beside: int
    """While the last of its parameters is copied out of its buffer, beside all buffers."""
    buffers: int
    """In those."""


def live_elements(
    model: Architecture,
    zero: Zero,
    *,
    checkpointed: bool,
    blocks: bool,
    apart: bool = False,
    lets_go: bool = False,
) -> Live:
    """Follow one step through a model; found again for the same model and sizes.

    `blocks`: whether a block of experts is gathered as one; `apart`: whether each expert is a
    module of its own; `lets_go`: whether what was recomputed with goes with the last module.
    """
    sizes = _Sizes(
        zero.max_live_parameters,
        zero.max_reuse_distance,
        zero.prefetch_bucket,
        zero.persistence_threshold,
    )
    lets_go = lets_go and checkpointed
    options = {"checkpointed": checkpointed, "blocks": blocks, "apart": apart, "lets_go": lets_go}
    made = partial(_live, model, sizes, **options)
    return _LIVE.of((model,), (sizes, *options.values()), made)


_LIVE: Final = Kept[Live]("compiler.analyses.memory.fetches.live", 256)


def _live(
    model: Architecture,
    sizes: _Sizes,
    *,
    checkpointed: bool,
    blocks: bool,
    apart: bool,
    lets_go: bool,
) -> Live:
    parameters = _Parameters(sizes, apart=apart)
    ends = {m.path: m for m in model.modules if "{}" not in m.path and m.part == "text"}
    embedding = parameters.of(ends.pop(model.embedding or "", None))
    layers = [_layer(parameters, *each, blocks=blocks) for each in _by_layer(model)]
    output = parameters.of(ends.pop(model.head or "", None)) or embedding
    root = _Visit(_OUTSIDE, (), tuple(range(len(parameters.elements))))
    first, last = _Visit(_OUTSIDE, embedding, embedding), _Visit(_OUTSIDE, output, output)
    rest = [_Visit(_OUTSIDE)] * len(ends)
    # the model and what it holds; the embedding, positions
    passed = list(chain(*layers))
    if not checkpointed:
        passed = list(map(parameters.saving, passed))
    forward = [root, root, first, _Visit(_OUTSIDE), *passed, *rest, last]
    backward = [root, last, root, *rest]
    for layer in reversed(layers):
        visits = list(_differentiated(parameters, layer, checkpointed=checkpointed))
        if lets_go:
            at = len(layer)
            visits[at] = visits[at]._replace(ends=frozenset(layer[0].under))
        backward += visits
    order = [*forward, *backward, first]
    moments = list(_moments(order, parameters.elements, sizes))
    highest: dict[int, int] = {}
    for visit, moment in zip(order[len(forward) :], moments[len(forward) :], strict=True):
        highest[visit.layer] = max(moment.whole, highest.get(visit.layer, 0))
    del highest[_OUTSIDE]
    most = max(range(len(forward)), key=lambda step: sum(moments[step][1:]))
    return Live(
        turn=moments[len(forward) - 1].whole,
        layers=tuple(highest[each] for each in sorted(highest, reverse=True)),
        buffers=moments[most].buffers,
        beside=moments[most].beside,
        reached=max(order[most].layer, 0) / max(len(layers), 1),
        repeated=_again(backward, moments[len(forward) :], len(layers), recomputed=True),
        again=_again(backward, moments[len(forward) :], len(layers), recomputed=False),
    )


def _again(
    visits: Sequence[_Visit], moments: Sequence[_Moment], layers: int, *, recomputed: bool
) -> Again | None:
    """The highest moment at which stacks of experts come out of a buffer in a backward pass."""
    found = [
        Again(moment.buffers, moment.beside, visit.layer / layers)
        for visit, moment in zip(visits, moments, strict=False)
        if (visit.saves if recomputed else visit.frees - visit.saves) and moment.buffers
    ]
    return max(found, key=lambda each: each.buffers + each.beside, default=None)


class _Parameters:
    """Elements of each parameter that is split over ranks."""

    def __init__(self, sizes: _Sizes, *, apart: bool) -> None:
        self.elements: list[int] = []
        self.stacks: set[int] = set()
        """Weights of several experts in one tensor."""
        self._sizes, self._apart = sizes, apart

    def of(self, module: Module | None) -> tuple[int, ...]:
        """Number the parameters of one copy.

        Experts that are modules of their own are put together as far as one gathering ahead takes.
        """
        if module is None:
            return ()
        first, size = len(self.elements), prod(module.shape)
        if self._apart and ".experts" in module.path:
            pieces = max(min(module.shape[0], size // max(self._sizes.bucket, 1)), 1)
            self.elements += [size // pieces] * pieces
        elif size > self._sizes.persistent:
            self.elements.append(size)
            if is_stack(module):
                self.stacks.add(first)
        return tuple(range(first, len(self.elements)))

    def saving(self, visit: _Visit) -> _Visit:
        """A visit whose graph is kept."""
        return visit._replace(saves=frozenset(visit.own) & self.stacks)

    def freeing(self, visit: _Visit) -> _Visit:
        """A visit whose graph is let go of."""
        return visit._replace(frees=frozenset(visit.own) & self.stacks)


def _by_layer(model: Architecture) -> Iterator[tuple[int, list[Module]]]:
    """Each layer of the language model with its modules."""
    found: dict[int, list[Module]] = {}
    for module in model.modules:
        if "{}" in module.path and module.part == "text":
            for layer in {place[0] for place in module.places()}:
                found.setdefault(layer, []).append(module)
    yield from sorted(found.items())


def _layer(
    parameters: _Parameters, layer: int, modules: Sequence[Module], *, blocks: bool
) -> list[_Visit]:
    """One layer as it runs: itself, its norms, attention and what is in it, then the experts."""
    experts = {_block(module) for module in modules if ".experts" in module.path}
    norms: list[_Visit] = []
    parts: list[list[_Visit]] = []
    under: tuple[int, ...] = ()
    for name, members in groupby(modules, key=_block):
        ordered = sorted(members, key=_turn)
        inside = [_Visit(layer, own, own) for own in _by_owner(parameters, ordered)]
        whole = tuple(each for visit in inside for each in visit.own)
        under += whole
        if name in experts and blocks:
            parts.append([_Visit(layer, whole, whole, is_leaf=True)])
        elif len(inside) == 1:
            norms += inside
        else:
            parts.append([_Visit(layer, (), whole), *inside])
    run = [_Visit(layer, (), under)]
    for part in parts:
        run += [*norms[:1], *part]
        norms = norms[1:]
    return run + norms


def _turn(module: Module) -> int:
    """When a part of a block runs: the router, the routed experts, those that are shared."""
    return 2 if "shared" in module.path else int(is_stack(module))


def _block(module: Module) -> str:
    """What a layer calls the part of it that holds the module."""
    return module.path.partition("{}.")[2].partition(".")[0]


def _by_owner(parameters: _Parameters, modules: Iterable[Module]) -> Iterator[tuple[int, ...]]:
    """Parameters of each module; both stacks of experts belong to one."""
    for _, members in groupby(modules, key=_owner):
        yield tuple(chain(*map(parameters.of, members)))


def _owner(module: Module) -> str:
    return module.path.rpartition(".")[0] if module.kind == "parameter" else module.path


def _differentiated(
    parameters: _Parameters, layer: Sequence[_Visit], *, checkpointed: bool
) -> Iterable[_Visit]:
    """A layer in a backward pass: where it is recomputed, when its last module is reached."""
    whole, last = layer[0], layer[-1]
    if not checkpointed:
        return [whole, *map(parameters.freeing, layer[:0:-1])]
    again = [parameters.saving(each) for each in layer[1:]]
    again[-1] = parameters.freeing(again[-1])
    return [whole, last, *again, *map(parameters.freeing, layer[-2:0:-1])]


class _Buffers:
    """Buffers in which several parameters come at once.

    All are copied out when the first is needed, and the buffer is let go when the last is visited:
    each has a handle that holds it (`AllGatherCoalescedHandle`, `InflightParamRegistry`).
    """

    def __init__(self, elements: Sequence[int]) -> None:
        self.elements = elements
        self.waiting: dict[int, set[int]] = {}
        """Of each parameter that is not visited yet, those that came with it and are not either."""
        self.opened: dict[int, tuple[set[int], int]] = {}

    def gather(self, parameters: Sequence[int]) -> int:
        """Gather together; one parameter alone needs no buffer."""
        if len(parameters) > 1:
            group = set(parameters)
            self.waiting.update((each, group) for each in parameters)
        return _sum(self.elements, parameters)

    def visit(self, parameters: Iterable[int]) -> int:
        """Copy what is needed; the elements of all buffers meanwhile."""
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
        """Elements of all buffers beside the parameters that were copied out of them."""
        return sum(size for _, size in self.opened.values())


def _moments(order: Sequence[_Visit], elements: Sequence[int], sizes: _Sizes) -> Iterator[_Moment]:
    """Elements that are whole when each module runs."""
    distances, buffers = _distances(order, elements), _Buffers(elements)
    awaited = deque((each, step) for step, visit in enumerate(order) for each in visit.own)
    reached = [-1] * len(elements)
    there: set[int] = set()
    saved: set[int] = set()
    left: set[int] = set()
    """Let go of while a view of them was saved."""
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
        yield _Moment(count + still + buffers.held, beside, meanwhile)
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


def _distances(order: Sequence[_Visit], elements: Sequence[int]) -> list[list[float]]:
    """Of each visit's parameters, the elements that are passed before it is met again."""
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
