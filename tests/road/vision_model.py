"""A tiny model that sees, and samples with images."""

import random
from pathlib import Path
from typing import Any, Final

from tests.road.materials import message, text_config, tokenizer

_SIDE: Final = 32
"""Pixels of an image; the tower's patches are 8 wide, so it becomes 16 tokens."""
_IMAGE: Final = "<image>"
_CHAT: Final = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{% endif %}{{ '</s>' }}{% endfor %}"
)


def write_seeing_model(folder: Path) -> None:
    """A LLaVA of two layers over a CLIP tower of two, with its processor."""
    import torch
    from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration

    processor = _processor()
    torch.manual_seed(0)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=_SIDE,
            patch_size=8,
        ),
        text_config=text_config(),
        image_token_index=processor.tokenizer.convert_tokens_to_ids(_IMAGE),
        image_seq_length=(_SIDE // 8) ** 2,
        dtype="bfloat16",
    )
    LlavaForConditionalGeneration(config).to(torch.bfloat16).save_pretrained(folder)
    processor.save_pretrained(folder)


def _processor() -> Any:
    from transformers import CLIPImageProcessorPil, LlavaProcessor

    words = tokenizer()
    words.add_special_tokens({"additional_special_tokens": [_IMAGE]})
    size = {"height": _SIDE, "width": _SIDE}
    return LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": _SIDE}, crop_size=size),
        tokenizer=words,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=_CHAT,
    )


def write_seen_samples(file: Path, count: int) -> None:
    """So many conversations about one image each, as Parquet that holds the images."""
    from datasets import Dataset, Features, Image, Sequence, Value

    drawn = random.Random(0)  # noqa: S311  pictures, not secrets
    said = [{"role": Value("string"), "content": Value("string")}]
    samples = [
        {
            "images": [_picture(drawn)],
            "messages": [message("user", drawn), message("assistant", drawn)],
        }
        for _ in range(count)
    ]
    features = Features({"images": Sequence(Image()), "messages": said})
    Dataset.from_list(samples, features=features).to_parquet(file)


def _picture(drawn: random.Random) -> Any:
    from PIL import Image

    return Image.new("RGB", (_SIDE, _SIDE), tuple(drawn.randbytes(3)))
