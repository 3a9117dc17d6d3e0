"""What autoencoders hold while they encode a clip: cards against the class itself."""

import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

from tunec.compiler.tracing.live.storages import Storages  # noqa: E402
from tunec.schemas.models.catalogue import card, card_names  # noqa: E402

WITH_CLIPS = {name: found for name in card_names() if (found := card(name).clips) is not None}
SHAPES = ((9, 512, 768), (33, 480, 832), (121, 704, 1280))
"""Frames, height and width, none of which the cards' numbers were measured at."""


def encoded(config, frames, high, wide):
    """The elements that are there at the peak of encoding one clip, without the weights."""
    kind = getattr(diffusers, config["_class_name"])
    options = {key: value for key, value in config.items() if not key.startswith("_")}
    with torch.device("meta"):
        model = kind(**options).to(torch.bfloat16).eval()
    watched = Storages()
    with torch.no_grad(), watched:
        model.encode(torch.empty(1, 3, frames, high, wide, dtype=torch.bfloat16, device="meta"))
    alive = highest = 0
    for event in watched.recording.events:
        alive += event.change
        highest = max(highest, alive)
    return sum(each.numel() for each in model.parameters()), highest / 2


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("name", WITH_CLIPS)
def test_a_card_says_what_encoding_a_clip_takes(name, shape):
    frames, high, wide = shape
    said = WITH_CLIPS[name]
    parameters, elements = encoded(said.config, frames, high, wide)
    assert said.parameters == parameters
    counted = (said.pixel + said.frame * frames) * high * wide
    assert counted == pytest.approx(elements, rel=1e-4)
