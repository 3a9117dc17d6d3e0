"""How the result of a matrix product falls into tiles, and tiles into waves over a device's units.

A kernel gives each unit one tile of the result at a time. What a tile holds beyond the result, and
units without a tile in the last wave, do nothing: a product of few rows is slower an operation.
"""

from collections.abc import Iterator
from itertools import chain
from math import ceil, prod
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.modules import experts_apart, is_stack
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.analyses.time.flops import (
    PARTS,
    active_share,
    module_tokens,
    multiplies,
    part_tokens,
    passes_gradient,
)
from tunec.compiler.analyses.time.kernels import sliced
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Part

_TILES: Final = (
    *((256, 128), (128, 256), (128, 128), (256, 64)),
    *((64, 256), (128, 64), (64, 128), (64, 64)),
)
"""Rows and columns: NVIDIA, Matrix Multiplication Background User's Guide, "Typical Tile Dimensions
in cuBLAS and Performance"."""
READ: Final = 24.0
"""Multiplications of a column that a unit of an A100 could do in 16 bits while it reads one element
of a tile's edge. It could do 43 where reading and multiplying never overlap (NVIDIA A100 Tensor
Core GPU Architecture: 5,120 bytes of L2 a clock for 108 units of 1,024 multiplications): a
judgement. A unit that multiplies less in a clock could do as many times fewer (`Machine.read`)."""


_LAST: Final = 0.5
"""Of the last wave, what has no tile: a half over all sizes. Taken over all sizes and not at each,
since kernels of other tiles are chosen where a last wave is nearly empty, and so that more rows
together are never slower than apart, on which the search's bound rests."""


class Product(NamedTuple):
    """Equal products that run one after the other."""

    rows: int
    columns: int
    together: int
    """The number of products that one kernel computes at once: all experts of a layer."""
    operations: float
    """The operations of all of them; only their proportions matter."""


class Products(NamedTuple):
    """The products of each pass over a model."""

    forward: tuple[Product, ...]
    backward: tuple[Product, ...]
    layers: tuple[Product, ...]
    """The products of the forward pass that are in layers."""


@cached(4096)
def products_of(workload: Workload, samples: float, tensor: int) -> Products:
    """The products of a micro batch of `samples`, with columns split among `tensor` ranks."""
    parts = [part for part in PARTS if part_tokens(workload, part)]
    every = [each for part in parts for each in _modules(workload, part, samples)]
    head = list(_head(workload, samples))
    trained = count(workload).trained_parts
    passed = [each for each in every + head if passes_gradient(workload, each.part)]
    back = chain.from_iterable(_backward(each, trained=each.part in trained) for each in passed)
    return Products(
        _merged((_forward(each) for each in every + head), tensor),
        _merged(back, tensor),
        _merged(map(_forward, every), tensor),
    )


class _Module(NamedTuple):
    part: Part
    rows: float
    outputs: int
    inputs: int
    together: int
    times: int


def _modules(workload: Workload, part: Part, samples: float) -> Iterator[_Module]:
    model = workload.architecture
    alone = experts_apart(workload) or sliced(workload)
    for module in model.modules:
        if module.part != part or not multiplies(module) or module.path == model.head:
            continue
        rows, shape, experts = samples * module_tokens(workload, module), module.shape, 1
        if ".experts" in module.path:
            rows *= active_share(model, part)
        if is_stack(module) and ".experts" in module.path:
            experts, shape = shape[0], shape[1:]
        one, times = (1, experts) if alone else (experts, 1)
        yield _Module(part, rows, shape[0], prod(shape[1:]), one, times * module.copies)


def _head(workload: Workload, samples: float) -> Iterator[_Module]:
    model = workload.architecture
    rows = samples * part_tokens(workload, "text")
    if rows and model.vocab:
        yield _Module("text", rows, model.vocab, model.hidden, 1, 1)


def _forward(module: _Module) -> Product:
    return _product(module, module.rows, module.outputs)


def _backward(module: _Module, *, trained: bool) -> Iterator[Product]:
    """For the gradient of what was read and, where it is trained, of the weight."""
    yield _product(module, module.rows, module.inputs)
    if trained:
        yield _product(module, module.outputs, module.inputs)


def _product(module: _Module, rows: float, columns: int) -> Product:
    done = module.rows * module.outputs * module.inputs * module.together * module.times
    return Product(max(1, round(rows)), columns, module.together, done)


def _merged(products: Iterator[Product], tensor: int) -> tuple[Product, ...]:
    found: dict[tuple[int, int, int], float] = {}
    for each in products:
        key = each.rows, ceil(each.columns / tensor), each.together
        found[key] = found.get(key, 0.0) + each.operations
    return tuple(Product(*key, done) for key, done in found.items())


@cached(4096)
def slowed(products: tuple[Product, ...], units: int, read: float = READ) -> float:
    """How many times longer products take than if every unit always had a full, largest tile."""
    done = sum(each.operations for each in products)
    if not units or not done:
        return 1.0
    return sum(each.operations / _share(*each[:3], units, read) for each in products) / done


@cached(4096)
def _share(rows: int, columns: int, together: int, units: int, read: float) -> float:
    """Share of the fastest product's rate that one of this size keeps up, by its best tiles."""
    return max(_tiled(rows, columns, together, units, read, tile) for tile in _TILES)


def _tiled(
    rows: int, columns: int, together: int, units: int, read: float, tile: tuple[int, int]
) -> float:
    tiles = max(1.0, rows / tile[0]) * ceil(columns / tile[1]) * together
    waves = max(1.0, tiles / units + _LAST)
    used = rows * columns * together / (waves * units * tile[0] * tile[1])
    return used * _pace(*tile, read) / _pace(*_TILES[0], read)


def _pace(rows: int, columns: int, read: float) -> float:
    """Share of a unit's time in which it multiplies, for it reads the tile's edges too."""
    return rows * columns / (rows * columns + read * (rows + columns))
