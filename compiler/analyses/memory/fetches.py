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

Adapters are modules that are visited too, and take a prefetch each; stacks of experts with adapters
are fetched one by one, in the order of the visits that DeepSpeed's coordinator was seen to make.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from math import prod
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.gathered_visits import Moment, Sizes, Visit, moments_of
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
    """Between the last module's forward pass and its backward pass, before which the model itself
    is visited again."""
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


def live_elements(
    model: Architecture,
    zero: Zero,
    *,
    checkpointed: bool,
    blocks: bool,
    apart: bool = False,
    lets_go: bool = False,
    adapted: frozenset[str] = frozenset(),
) -> Live:
    """Follow one step through a model; cached by model and sizes.

    `blocks`: whether a block of experts is gathered as one; `apart`: whether each expert is its own
    module; `lets_go`: whether recomputed ones go with the last module; `adapted`: the paths of
    modules with adapters.
    """
    sizes = Sizes(
        zero.max_live_parameters,
        zero.max_reuse_distance,
        zero.prefetch_bucket,
        zero.persistence_threshold,
    )
    lets_go = lets_go and checkpointed
    options = {"checkpointed": checkpointed, "blocks": blocks, "apart": apart, "lets_go": lets_go}
    merges = any(is_stack(module) for module in model.modules if module.path in adapted)
    viewed = frozenset(m.path for m in model.modules if saves_view(model, m, merges=merges))
    made = partial(_live, model, sizes, viewed, adapted, **options)
    return _LIVE.of((model,), (sizes, adapted, *options.values()), made)


_LIVE: Final = BoundedCache[Live]("compiler.analyses.memory.fetches.live", 256)


def _live(
    model: Architecture,
    sizes: Sizes,
    viewed: Container[str],
    adapted: frozenset[str],
    *,
    checkpointed: bool,
    blocks: bool,
    apart: bool,
    lets_go: bool,
) -> Live:
    parameters = _Parameters(sizes, viewed, apart=apart)
    ends = {m.path: m for m in model.modules if "{}" not in m.path and m.part == "text"}
    embedding = parameters.of(ends.pop(model.embedding or "", None))
    layers = [_layer(parameters, *each, adapted, blocks=blocks) for each in _by_layer(model)]
    output = parameters.of(ends.pop(model.head or "", None)) or embedding
    root = Visit(_OUTSIDE, (), tuple(range(len(parameters.elements))))
    first, last = Visit(_OUTSIDE, embedding, embedding), Visit(_OUTSIDE, output, output)
    rest = [Visit(_OUTSIDE)] * len(ends)
    # the model and what it holds; the embedding, positions
    passed = list(chain(*layers))
    if not checkpointed:
        passed = list(map(parameters.saving, passed))
    # PEFT's model is one more around it
    outer = [root] * bool(adapted)
    forward = [*outer, root, root, first, Visit(_OUTSIDE), *passed, *rest, last]
    backward = [*outer, root, last, root, *rest]
    for layer in reversed(layers):
        visits = list(_differentiated(parameters, layer, checkpointed=checkpointed))
        if lets_go:
            at = len(visits) - len(layer) + 1
            visits[at] = visits[at]._replace(ends=frozenset(layer[0].under))
        backward += visits
    order = [*forward, *backward, first]
    moments = list(moments_of(order, parameters.elements, sizes))
    highest: dict[int, int] = {}
    for visit, moment in zip(order[len(forward) :], moments[len(forward) :], strict=True):
        highest[visit.layer] = max(moment.whole, highest.get(visit.layer, 0))
    del highest[_OUTSIDE]
    most = max(range(len(forward)), key=lambda step: sum(moments[step][1:]))
    return Live(
        turn=max(each.whole for each in moments[len(forward) - 1 : len(forward) + 1 + len(outer)]),
        layers=tuple(highest[each] for each in sorted(highest, reverse=True)),
        buffers=moments[most].buffers,
        beside=moments[most].beside,
        reached=max(order[most].layer, 0) / max(len(layers), 1),
        repeated=_again(backward, moments[len(forward) :], len(layers), recomputed=True),
        again=_again(backward, moments[len(forward) :], len(layers), recomputed=False),
    )


def _again(
    visits: Sequence[Visit], moments: Sequence[Moment], layers: int, *, recomputed: bool
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

    def __init__(self, sizes: Sizes, viewed: Container[str], *, apart: bool) -> None:
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

    def saving(self, visit: Visit) -> Visit:
        """A visit whose graph is kept."""
        return visit._replace(saves=frozenset(visit.own) & self.viewed)

    def freeing(self, visit: Visit) -> Visit:
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
    parameters: _Parameters,
    layer: int,
    modules: Sequence[Module],
    adapted: Container[str],
    *,
    blocks: bool,
) -> list[Visit]:
    """One layer in running order: itself, its norms, attention with its modules, then experts."""
    experts = {_block(module) for module in modules if ".experts" in module.path}
    norms: list[Visit] = []
    parts: list[list[Visit]] = []
    under: tuple[int, ...] = ()
    for name, members in groupby(modules, key=_block):
        ordered = sorted(members, key=_turn)
        owners = _by_owner(parameters, ordered)
        inside = [visit for owner in owners for visit in _adapting(layer, owner, adapted)]
        whole = tuple(each for visit in inside for each in visit.own)
        under += whole
        if name in experts and blocks:
            parts.append([Visit(layer, whole, whole, is_leaf=True)])
        elif len(inside) == 1:
            norms += inside
        else:
            parts.append([Visit(layer, (), whole), *inside])
    run = [Visit(layer, (), under)]
    for part in parts:
        run += [*norms[:1], *part]
        norms = norms[1:]
    return run + norms


def _adapting(
    layer: int, owner: Sequence[tuple[Module, tuple[int, ...]]], adapted: Container[str]
) -> Iterator[Visit]:
    """The visits of one module, with those of adapters, at each of which more is prefetched.

    peft 0.21.2 `tuners/lora/layer.py`: around a linear layer there is one module, and behind it the
    dropout, A and B. Around experts there is one for each stack with adapters, the last outermost
    (`ParamWrapper`), which gathers the stack since it reads it. What adapters have is left out.
    """
    found = [(module, own) for module, own in owner if module.path in adapted]
    stacks = [own for module, own in found if is_stack(module)]
    for own in reversed(stacks):
        yield Visit(layer, own, own, is_around=True)
    beside, linears = Visit(layer), len(found) - len(stacks)
    yield from [beside] * linears
    own = tuple(chain(*(each for _, each in owner if each not in stacks)))
    yield Visit(layer, own, own)
    yield from [beside] * 3 * linears


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


def _by_owner(
    parameters: _Parameters, modules: Iterable[Module]
) -> Iterator[list[tuple[Module, tuple[int, ...]]]]:
    """Parameters of each module; both stacks of experts belong to one."""
    for _, members in groupby(modules, key=_owner):
        yield [(each, parameters.of(each)) for each in members]


def _owner(module: Module) -> str:
    return module.path.rpartition(".")[0] if module.kind == "parameter" else module.path


def _ending(layer: Sequence[Visit]) -> int:
    """How many visits before its end a layer's last module begins, with all that is around it."""
    return next((i for i in range(2, len(layer)) if not layer[-i].is_around), len(layer)) - 1


def _differentiated(
    parameters: _Parameters, layer: Sequence[Visit], *, checkpointed: bool
) -> Iterable[Visit]:
    """A layer in a backward pass: recomputed when its last module is reached."""
    whole = layer[0]
    if not checkpointed:
        return [whole, *map(parameters.freeing, layer[:0:-1])]
    again = [parameters.saving(each) for each in layer[1:]]
    again[-1] = parameters.freeing(again[-1])
    return [whole, *layer[-_ending(layer) :], *again, *map(parameters.freeing, layer[-2:0:-1])]
