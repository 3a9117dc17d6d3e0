"""How MiniCPM-V cuts pictures: an overview, and slices whose shape is nearest to the tower's.

image_processing_minicpmv.py of openbmb/MiniCPM-Llama3-V-2_5 and MiniCPM-V-2_6,
MiniCPMVImageProcessor.slice_image, get_sliced_grid, find_best_resize, get_refine_size; the same,
but for sides of whole tokens, in transformers 5.23.0,
models/minicpmv4_6/image_processing_minicpmv4_6.py.
"""

import math
from collections.abc import Iterator

from tunec.schemas.models.architecture import ImageTokens

Size = tuple[int, int]
"""Width and height, or columns and rows."""


def grids(least: int, most: int) -> Iterator[Size]:
    """All grids of `least` to `most` tiles, smaller ones first."""
    for tiles in range(least, most + 1):
        for columns in range(1, tiles + 1):
            if tiles % columns == 0:
                yield columns, tiles // columns


def _slice_grid(images: ImageTokens, width: int, height: int) -> Size | None:
    """Choose the grid of slices whose shape is nearest to the picture's; None: not sliced."""
    ideal = min(math.ceil(width * height / images.image_size**2), images.max_slices)
    if ideal <= 1:
        return None
    candidates = [
        grid
        for slices in (ideal - 1, ideal, ideal + 1)
        if 1 < slices <= images.max_slices
        for grid in grids(slices, slices)
    ]
    shape = math.log(width / height)
    return min(candidates, key=lambda grid: abs(shape - math.log(grid[0] / grid[1])))


def _nearest(side: float, factor: int) -> int:
    return max(round(side / factor) * factor, factor)


def _resized(images: ImageTokens, width: float, height: float, *, enlarges: bool) -> Size:
    """Scale to the tower's area, keeping the shape, to whole patches or tokens."""
    side = images.image_size
    if width * height > side * side or enlarges:
        ratio = width / height
        height = int(side / math.sqrt(ratio))
        width = int(height * ratio)
    factor = images.patch * images.merge
    return _nearest(width, factor), _nearest(height, factor)


def _slice_count(images: ImageTokens, width: int, height: int) -> int:
    grid = _slice_grid(images, width, height)
    return 1 + (grid[0] * grid[1] if grid else 0)


def sliced_tokens(images: ImageTokens, width: int, height: int) -> int:
    """Tokens of all slices: a fixed number each, or the number of patches after they are merged."""
    if images.tokens:
        return _slice_count(images, width, height) * images.tokens
    return sum(sliced_tower(images, width, height)) // images.merge**2


def sliced_tower(images: ImageTokens, width: int, height: int) -> tuple[int, ...]:
    """The number of patches of the overview, then of each slice."""
    grid = _slice_grid(images, width, height)
    overview = _patches(images, _resized(images, width, height, enlarges=grid is None))
    if grid is None:
        return (overview,)
    columns, rows = grid
    wide, high = _nearest(width, columns) / columns, _nearest(height, rows) / rows
    piece = _patches(images, _resized(images, wide, high, enlarges=True))
    return overview, *((piece,) * (columns * rows))


def _patches(images: ImageTokens, size: Size) -> int:
    return (size[0] // images.patch) * (size[1] // images.patch)
