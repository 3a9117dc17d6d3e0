"""What an encoder reads that is no text: the shape of a sample, and the positions made of it."""

from typing import Any, Final

from msgspec import Struct

from tunec.compiler.tracing.subject import Untraceable

FEATURES: Final = "input_features"
"""What models that hear call their sound, as bands of frequencies over time."""


class Source(Struct, frozen=True):
    """One sample of it."""

    shape: tuple[int, ...]
    positions: int
    """What layers of the encoder see of it, however long the text is."""


def source_of(model: Any) -> Source:
    """The sound that a model's encoder reads, which is always as long.

    Whisper's class refuses any other length, and pads shorter sounds with silence (transformers
    5.23 `models/whisper/modeling_whisper.py`, `WhisperEncoder.forward`: `expected_seq_length`).
    Raises Untraceable where sounds of any length are read.
    """
    encoder, config = model.get_encoder(), model.config
    convolutions = [getattr(encoder, name, None) for name in ("conv1", "conv2")]
    positions = getattr(encoder, "max_source_positions", None)
    if positions is None or None in convolutions:
        raise Untraceable("its encoder reads sounds of any length, and a card counts that of text")
    first, second = (each.stride[0] for each in convolutions if each is not None)
    return Source((config.num_mel_bins, positions * first * second), positions)
