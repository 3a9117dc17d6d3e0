"""How SmolVLM splits images: resized to a given long side, then whole tiles a side.

Read from transformers 5.23.0, `models/smolvlm/image_processing_smolvlm.py`, `resize`,
`resize_for_vision_encoder` and `split_images`.
"""

from tunec.schemas.models.architecture import ImageTokens


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
