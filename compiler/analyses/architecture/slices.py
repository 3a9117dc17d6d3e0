"""How models cut a picture before their tower sees it: Idefics2, MiniCPM-V and SmolVLM."""

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


def idefics2_pictures(images: ImageTokens) -> int:
    """The number of images that one becomes: its quarters and itself, or itself alone."""
    return images.max_slices + 1 if images.max_slices > 1 else 1


def idefics2_tower(images: ImageTokens, width: int, height: int) -> tuple[int, ...]:
    """The patches of each of them."""
    sizes = [_within_bounds(images, width, height)]
    if images.max_slices > 1:
        halves = [(side // 2, side - side // 2) for side in (width, height)]
        sizes += [_within_bounds(images, wide, high) for wide in halves[0] for high in halves[1]]
    wide, high = (max(sides) for sides in zip(*sizes, strict=True))
    patches = (wide // images.patch) * (high // images.patch)
    return (patches,) * idefics2_pictures(images)


def _within_bounds(images: ImageTokens, width: int, height: int) -> tuple[int, int]:
    shape = width / max(height, 1)
    if width >= height and width > images.max_side:
        width, height = images.max_side, int(images.max_side / shape)
    elif height > width and height > images.max_side:
        width, height = int(images.max_side * shape), images.max_side
    return max(width, images.image_size), max(height, images.image_size)


def smolvlm_tiles(images: ImageTokens, width: int, height: int) -> int:
    """The number of tiles of an image, with the overview if there are two or more."""
    wide, high = _to_long_side(width, height, images.max_side, even=True)
    wide, high = _to_long_side(wide, high, _up(max(wide, high), images.image_size))
    tiles = _up(wide, images.image_size) * _up(high, images.image_size) // images.image_size**2
    return tiles + 1 if tiles > 1 else 1


def _to_long_side(width: int, height: int, long: int, *, even: bool = False) -> tuple[int, int]:
    """The size of an image with the given longer side; the other one is made even with `even`."""
    short = int(long / (width / height)) if width >= height else int(long * (width / height))
    short = max(short + short % 2 if even else short, 1)
    return (long, short) if width >= height else (short, long)


def _up(side: int, factor: int) -> int:
    return -(-side // factor) * factor
