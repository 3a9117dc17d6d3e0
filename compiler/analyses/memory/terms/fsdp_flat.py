"""The memory that FSDP 1 needs at each moment of a step besides shards.

A unit's parameters are pieces of one flat tensor. Their gradients wait for each other, are
concatenated in one tensor of that size, and are freed with the unit before the sum over ranks is
allocated (torch 2.13 `distributed/fsdp/_flat_param.py`, `_runtime_utils.py`). The root unit, which
holds everything outside of layers, stays gathered from its first use to the end. Traced by `tunec
trace`.
"""

from collections.abc import Iterator

from tunec.compiler.analyses.memory.counts import Counts
from tunec.compiler.analyses.memory.terms.fsdp_units import FORWARDS, Run, Whole
from tunec.compiler.analyses.memory.timeline import At, Sizes, Term, lasting


def flat_terms(run: Run) -> Iterator[Term]:
    """Terms at the moments that depend on neither micro batch nor recomputation."""
    for born, freed in FORWARDS:
        yield from lasting(_whole(run, _after_forward(run)), born, freed)
    yield from lasting(_whole(run, _at_turn(run)), At.LOSS_BACKWARD, At.LOSS_BACKWARD)
    if run.trains_head:
        yield from lasting(_differentiated(run, 1, 0.0), At.HEAD, At.HEAD)
    yield from lasting(_differentiated(run, 1, 0.0), At.LAST_LAYER, At.EXPANSION)
    yield from lasting(_at_end(run), At.EMBEDDING, At.EMBEDDING)


def flat_first_layer(run: Run, counts: Counts) -> Sizes:
    """Sizes while the first layer is differentiated."""
    return _differentiated(run, run.layers, _own(run, counts))


def flat_reductions(run: Run) -> tuple[tuple[float, Sizes], ...]:
    """Sizes while gradients are concatenated, each with the share of layers to come."""
    return (*_layers_done(run), *_frozen_layers(run))


def flat_begun(run: Run, counts: Counts) -> tuple[tuple[float, Sizes], ...]:
    """In the last layer but one, the first still ahead."""
    done, own = run.layers - 1, _own(run, counts)
    return ((1 - done / run.layers, _differentiated(run, done, own)),) if done > 0 else ()


def flat_in_passing(run: Run) -> Whole:
    """The units that are gathered in a pass that keeps nothing."""
    after = _after_forward(run)
    return Whole(_whole(run, max(after, 1.0)), _whole(run, after))


def _own(run: Run, counts: Counts) -> float:
    """Bytes of a layer's gradients that exist when its feed-forward is differentiated."""
    return max(run.gradient(run.units.layer) - run.width * counts.late, 0.0)


def _keeps(run: Run) -> bool:
    """Whether layers stay gathered from forward to backward.

    Unsharded layers are copied to a 16-bit dtype, and the copies are freed
    (`_free_low_precision_sharded_param`).
    """
    return run.fsdp.sharding == "grad_op"


def _after_forward(run: Run) -> float:
    """The number of layers that are gathered when a forward pass is done."""
    return float(run.layers) if _keeps(run) else 0.0


def _at_turn(run: Run) -> float:
    """The number of layers gathered when the backward pass begins; prefetching gathers one."""
    return max(_after_forward(run), 1.0 if run.fsdp.backward_prefetch == "pre" else 0.0)


def _whole(run: Run, layers: float) -> Sizes:
    """Bytes of the root unit and some layers when they are gathered."""
    units = run.units
    inside = min(layers * units.layer.size, max(units.every.size - units.root.size, 0.0))
    return {"gathered parameters": units.root.size + inside}


def _ahead(run: Run, done: int) -> float:
    """The number of layers that are gathered beside the one that is differentiated.

    `done`: the layer's number, counted from the end. If adapters are separate units, the next unit
    is an adapter's.
    """
    if _keeps(run):
        return float(run.layers - done)
    gathers = run.fsdp.backward_prefetch == "pre" and not run.adapted
    return 1.0 if gathers and done < run.layers else 0.0


def _after(run: Run, done: int) -> Sizes:
    """Gradients of the layers differentiated before a layer, and of parameters in the root unit."""
    units = run.units
    inside = units.every.trained - units.root.trained
    return {
        "gradients": run.shard * min(units.layer.trained * (done - 1), inside),
        "tied gradient": run.tied,
        "largest gradient": run.head,
    }


def _still(run: Run, done: int) -> Sizes:
    """Unsharded gradients of earlier micro batches."""
    later = (done - 1) * run.gradient(run.units.layer)
    return {"accumulated gradients": max(run.waiting(run.units.every) - later * run.waits, 0.0)}


def _differentiated(run: Run, done: int, own: float) -> Sizes:
    """Sizes while a layer is differentiated; `own`: bytes of its gradients that exist."""
    whole = _whole(run, 1 + _ahead(run, done))
    return {**whole, **_after(run, done), **_still(run, done), "waiting gradients": own}


def _layers_done(run: Run) -> tuple[tuple[float, Sizes], ...]:
    """Sizes when gradients of a layer are concatenated: the last, the second and the first layer.

    Each comes with the share of the layers that the pass has not reached.
    """
    own = run.gradient(run.units.layer)
    moments = sorted({1, max(run.layers - 1, 1), run.layers})
    return tuple(
        (1 - done / run.layers, {**_differentiated(run, done, own), "reduced copy": own})
        for done in moments
    )


def _frozen_layers(run: Run) -> tuple[tuple[float, Sizes], ...]:
    """Sizes when a frozen layer is still gathered while the layer before it begins."""
    if not run.adapted or run.layers == 1:
        return ()
    whole = _whole(run, 2.0 if not _keeps(run) else float(run.layers))
    return ((1 - 1 / run.layers, {**whole, **_after(run, 2), **_still(run, 2)}),)


def _at_end(run: Run) -> Sizes:
    """Sizes with the root unit's gradients concatenated, or with both parts and sum of a tied one.

    In a micro batch that is not the last, layers keep their unsharded gradients, and stay gathered
    if they are gathered since the forward pass; the root's are added to those of earlier ones.
    """
    units = run.units
    root = run.gradient(units.root)
    before = {**_after(run, run.layers + 1), **_whole(run, 0.0)}
    before["accumulated gradients"] = run.waiting(units.root)
    waiting = {
        **_whole(run, _after_forward(run)),
        "accumulated gradients": run.width * run.rest(*(() if run.adds else (units.root,))),
    }
    joined = {"largest gradient": root, "tied gradient": 0.0, "reduced copy": root}
    summed = {"largest gradient": run.head, "tied gradient": 3 * run.tied}
    moments = [before, waiting] if run.waits else [before]
    found = [{**moment, **made} for moment in moments for made in (joined, summed)]
    return max(found, key=lambda terms: sum(terms.values()))
