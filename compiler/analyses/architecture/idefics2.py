"""How Idefics2 splits images: four quarters before the whole, each within bounds on its sides.

Read from transformers 5.23.0, `models/idefics2/image_processing_idefics2.py`, `split_images`,
`get_resize_output_image_size` and `_preprocess`, which pads all of them to the largest.
"""

from tunec.schemas.models.architecture import ImageTokens


def idefics2_pictures(images: ImageTokens) -> int:
    """The number of images that one becomes: its quarters and itself, or itself alone."""
    return images.max_slices + 1 if images.max_slices > 1 else 1


def idefics2_tower(images: ImageTokens, width: int, height: int) -> tuple[int, ...]:
    """The patches of each of them."""
    sizes = [_resized(images, width, height)]
    if images.max_slices > 1:
        halves = [(side // 2, side - side // 2) for side in (width, height)]
        sizes += [_resized(images, wide, high) for wide in halves[0] for high in halves[1]]
    wide, high = (max(sides) for sides in zip(*sizes, strict=True))
    patches = (wide // images.patch) * (high // images.patch)
    return (patches,) * idefics2_pictures(images)


def _resized(images: ImageTokens, width: int, height: int) -> tuple[int, int]:
    shape = width / max(height, 1)
    if width >= height and width > images.max_side:
        width, height = images.max_side, int(images.max_side / shape)
    elif height > width and height > images.max_side:
        width, height = int(images.max_side * shape), images.max_side
    return max(width, images.image_size), max(height, images.image_size)
