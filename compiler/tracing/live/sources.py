"""Encoder inputs that are not text: the shape of a sample, and the number of its positions."""

from typing import Any, Final

from msgspec import Struct

from tunec.compiler.tracing.subject import Untraceable

FEATURES: Final = "input_features"
"""The name of the sound input of speech models: frequency bands over time."""


class Source(Struct, frozen=True):
    """One sample of an encoder input."""

    shape: tuple[int, ...]
    positions: int
    """The number of positions in the encoder's layers, which does not depend on the text's
    length."""


def source_of(model: Any) -> Source:
    """The sound that a model's encoder reads, which always has the same length.

    Whisper's class refuses any other length, and pads shorter sounds with silence (transformers
    5.23 `models/whisper/modeling_whisper.py`, `WhisperEncoder.forward`: `expected_seq_length`).
    Raises Untraceable if the encoder reads sounds of any length.
    """
    encoder, config = model.get_encoder(), model.config
    convolutions = [getattr(encoder, name, None) for name in ("conv1", "conv2")]
    positions = getattr(encoder, "max_source_positions", None)
    if positions is None or None in convolutions:
        raise Untraceable("its encoder reads sounds of any length, and a card counts that of text")
    first, second = (each.stride[0] for each in convolutions if each is not None)
    return Source((config.num_mel_bins, positions * first * second), positions)
