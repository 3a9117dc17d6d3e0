"""The units that FSDP 2 has gathered in a forward pass, and the buffers that they come out of."""

from tunec.compiler.analyses.memory.terms.fsdp_units import Run, Unit
from tunec.compiler.analyses.memory.timeline import Sizes, total


def keeps(run: Run) -> bool:
    """Whether units stay gathered from forward to backward."""
    return run.fsdp.sharding in ("grad_op", "none")


def whole_at_turn(run: Run) -> Sizes:
    """The units that are gathered at the turn from forward to backward."""
    units = run.units
    kept = units.every.size if keeps(run) else units.root.size + units.tail.size
    return {"gathered parameters": kept}


def _gather_buffer(run: Run, unit: Unit) -> float:
    """Bytes of a unit's gather buffer in version 2; version 1 gathers into the unit itself."""
    return unit.size if run.fsdp.version == 2 else 0.0


def at_loss_forward(run: Run) -> Sizes:
    """Sizes at the loss: the last unit, and its buffer, which the next gathering would free."""
    units = run.units
    last = units.layer if run.shares or run.by != "unit" or not units.tail.size else units.tail
    return {
        **whole_at_turn(run),
        "gather buffer": _gather_buffer(run, last),
    }


def at_first_gathering(run: Run) -> Sizes:
    """When the first layer is copied out of its buffer, and a tied embedding's is held still.

    One of its own is let go of by then, unless all are kept; it came beside the root's buffer.
    """
    units = run.units
    root, own, layer = units.root.size, units.embedding.size, units.layer.size
    if not run.shares and own > layer:
        made = {"gathered parameters": root + own, "gather buffer": root + own}
        kept = own * keeps(run)
        then = {"gathered parameters": root + kept + layer, "gather buffer": own + layer}
        return max(made, then, key=total)
    if keeps(run) or not run.shares or units.tail.size <= layer:
        return {}
    both = units.tail.size + layer
    return {"gathered parameters": root + both, "gather buffer": both}


def in_layer(run: Run) -> Sizes:
    """A layer and its buffer besides the units that stay gathered; a separate head comes later."""
    units = run.units
    if keeps(run):
        return {**whole_at_turn(run), "gather buffer": _gather_buffer(run, units.layer)}
    kept = units.root.size + (units.tail.size if run.shares else 0.0)
    return {
        "gathered parameters": kept + units.layer.size,
        "gather buffer": _gather_buffer(run, units.layer),
    }


def _gathering_kept(run: Run, layers: int) -> tuple[float, Sizes]:
    """The gathered units: at the last layer, or at a separate head behind it."""
    every, layer = run.units.every.size, run.units.layer.size
    tail = 0.0 if run.shares else run.units.tail.size
    if 2 * tail > layer and run.by == "unit":
        return 1.0, {"gathered parameters": every, "gather buffer": layer + tail}
    return 1 - 1 / layers, {"gathered parameters": every - tail, "gather buffer": 2 * layer}


def at_gathering(run: Run, layers: int) -> tuple[float, Sizes]:
    """Sizes while a unit is copied out of its buffer; only then the buffer before it is freed.

    torch 2.13 `_fsdp_param_group.py`, `wait_for_unshard`: a variable holds the buffer to the end. A
    root unit that holds both ends is the largest, and comes first.
    """
    units = run.units
    if run.fsdp.sharding == "none":
        return 0.0, {}
    if keeps(run):
        return _gathering_kept(run, layers)
    if units.root.size > units.layer.size:
        whole = {"gathered parameters": units.root.size + units.layer.size}
        buffers = {"gather buffer": units.root.size + units.layer.size}
        return 0.0, {**whole, **buffers}
    ends = 0.0 if run.shares or run.by != "unit" else units.layer.size + 2 * units.tail.size
    kept = units.root.size + (units.tail.size if run.shares else 0.0)
    share = 1.0 if ends > 3 * units.layer.size else 1 - 1 / layers
    return share, {
        "gathered parameters": kept,
        "gather buffer": max(3 * units.layer.size, ends),
    }
