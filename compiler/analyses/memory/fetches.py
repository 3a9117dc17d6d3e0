"""Which parameters ZeRO stage 3 has gathered at a time.

DeepSpeed records the order in which a step visits modules. At each module it gathers the parameters
that are still split, then prefetches some of the next ones, as long as fewer than
`max_live_parameters` elements are gathered; a finished module releases its parameters unless one is
visited again within `max_reuse_distance` elements, or the prefetch skipped it (deepspeed 0.19.8
`runtime/zero/partitioned_param_coordinator.py`, `fetch_sub_module`, `__params_to_release`; the same
in 0.14.5, 0.15.4, 0.16.9, 0.17.6 and 0.18.9). The distance from a leaf module is counted through
all modules with everything in them, that from others through the modules' own parameters, of which
a block of experts has none.

A parameter of which a kept graph saves a view (`weight_views`) stays in memory when it is released,
and is gathered a second time for the backward pass. Traced.

If a layer is recomputed within the backward pass of its last module, as torch does without
`use_reentrant`, all frozen parameters that it read are released with that module, however soon they
are needed, and are gathered again for the backward pass (0.19.3 to 0.19.8,
`update_recompute_parameters`): experts in front of shared ones exist twice, and a third time while
they are copied out of a buffer. Traced.
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, groupby
from math import inf, prod
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.modules import is_stack
from tunec.compiler.analyses.memory.weight_views import saves_view
from tunec.compiler.ir.slots import Zero
from tunec.schemas.caches import BoundedCache
from tunec.schemas.models.architecture import Architecture, Module

_OUTSIDE: Final = -1
"""The layer number of a module outside all layers."""


class Live(NamedTuple):
    """The most gathered elements at moments of a step, without persistent ones."""

    turn: int
    """Between the last module's forward pass and its backward pass."""
    layers: tuple[int, ...]
    """While each layer is recomputed and differentiated, the last one first."""
    buffers: int
    """In the buffers of the forward pass, at its highest moment."""
    beside: int
    """Gathered at that moment, without the buffers."""
    reached: float
    """The share of the layers that the pass has reached at that moment."""
    repeated: "Again | None" = None
    """Experts gathered again to recompute their layer; None: they are still gathered."""
    again: "Again | None" = None
    """Experts gathered again for their backward pass; None: they are still gathered."""


class Again(NamedTuple):
    """The highest moment of a backward pass when stacks of experts are gathered."""

    buffers: int
    beside: int
    left: float
    """The share of the layers before this one."""


class _Visit(NamedTuple):
    """A module in the order of a step, with its parameters."""

    layer: int
    own: tuple[int, ...] = ()
    """Parameters that are gathered for it."""
    under: tuple[int, ...] = ()
    """Its parameters and those of all modules in it."""
    is_leaf: bool = False
    saves: frozenset[int] = frozenset()
    """Parameters of which a kept graph saves views from here on."""
    frees: frozenset[int] = frozenset()
    """Parameters whose views are freed at its end."""
    ends: frozenset[int] = frozenset()
    """Parameters that are released at its end, however soon they are needed again."""


class _Sizes(NamedTuple):
    most: int
    distance: int
    bucket: int
    persistent: int


class _Moment(NamedTuple):
    """Elements at one visit."""

    whole: int
    """While the module runs, with buffers."""
    beside: int
    """While its last parameter is copied out of its buffer, without the buffers."""
    buffers: int
    """In the buffers."""


def live_elements(
    model: Architecture,
    zero: Zero,
    *,
    checkpointed: bool,
    blocks: bool,
    apart: bool = False,
    lets_go: bool = False,
    merges: bool = False,
) -> Live:
    """Follow one step through a model; cached by model and sizes.

    `blocks`: whether a block of experts is gathered as one; `apart`: whether each expert is its own
    module; `lets_go`: whether recomputed ones go with the last module; `merges`: see `saves_view`.
    """
    sizes = _Sizes(
        zero.max_live_parameters,
        zero.max_reuse_distance,
        zero.prefetch_bucket,
        zero.persistence_threshold,
    )
    lets_go = lets_go and checkpointed
    options = {"checkpointed": checkpointed, "blocks": blocks, "apart": apart, "lets_go": lets_go}
    viewed = frozenset(m.path for m in model.modules if saves_view(model, m, merges=merges))
    made = partial(_live, model, sizes, viewed, **options)
    return _LIVE.of((model,), (sizes, merges, *options.values()), made)


_LIVE: Final = BoundedCache[Live]("compiler.analyses.memory.fetches.live", 256)


def _live(
    model: Architecture,
    sizes: _Sizes,
    viewed: Container[str],
    *,
    checkpointed: bool,
    blocks: bool,
    apart: bool,
    lets_go: bool,
) -> Live:
    parameters = _Parameters(sizes, viewed, apart=apart)
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
    """The highest moment at which a backward pass copies stacks of experts out of a buffer."""
    found = [
        Again(moment.buffers, moment.beside, visit.layer / layers)
        for visit, moment in zip(visits, moments, strict=False)
        if (visit.saves if recomputed else visit.frees - visit.saves) and moment.buffers
    ]
    return max(found, key=lambda each: each.buffers + each.beside, default=None)


class _Parameters:
    """The number of elements of each parameter that is split over ranks."""

    def __init__(self, sizes: _Sizes, viewed: Container[str], *, apart: bool) -> None:
        self.elements: list[int] = []
        self.viewed: set[int] = set()
        """Indices of those of which a graph saves views: of modules at the paths `viewed`."""
        self._sizes, self._paths, self._apart = sizes, viewed, apart

    def of(self, module: Module | None) -> tuple[int, ...]:
        """Number the parameters of one copy.

        Experts that are separate modules are combined up to the size of one prefetch.
        """
        if module is None:
            return ()
        first, size = len(self.elements), prod(module.shape)
        if self._apart and ".experts" in module.path:
            pieces = max(min(module.shape[0], size // max(self._sizes.bucket, 1)), 1)
            self.elements += [size // pieces] * pieces
        elif size > self._sizes.persistent:
            self.elements.append(size)
            if module.path in self._paths:
                self.viewed.add(first)
        return tuple(range(first, len(self.elements)))

    def saving(self, visit: _Visit) -> _Visit:
        """A visit whose graph is kept."""
        return visit._replace(saves=frozenset(visit.own) & self.viewed)

    def freeing(self, visit: _Visit) -> _Visit:
        """A visit whose graph is freed."""
        return visit._replace(frees=frozenset(visit.own) & self.viewed)


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
    """One layer in running order: itself, its norms, attention with its modules, then experts."""
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
    """The order of a block's parts: the router, the routed experts, the shared ones.

    The parameters of one module are prefetched in the order in which its class makes them, a stack
    of biases after its matrices (`record_parameters` sorts them by `ds_id`).
    """
    is_expert = is_stack(module) or _owner(module).endswith(".experts")
    return 2 if "shared" in module.path else int(is_expert)


def _block(module: Module) -> str:
    """The name of the layer's part that holds the module."""
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
    """A layer in a backward pass: recomputed when its last module is reached."""
    whole, last = layer[0], layer[-1]
    if not checkpointed:
        return [whole, *map(parameters.freeing, layer[:0:-1])]
    again = [parameters.saving(each) for each in layer[1:]]
    again[-1] = parameters.freeing(again[-1])
    return [whole, last, *again, *map(parameters.freeing, layer[-2:0:-1])]


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


def _moments(order: Sequence[_Visit], elements: Sequence[int], sizes: _Sizes) -> Iterator[_Moment]:
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
