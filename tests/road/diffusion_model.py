"""Tiny models that paint, what to train them on, and the packages that their trainer needs."""

import io
import random
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.road.materials import WORDS

from tunec.compiler.consumers.sets import choose

RELEASE: Final = "4.10.1"
BESIDE: Final = (
    *choose("simpletuner", RELEASE).requirements,
    # what it reads pictures and writes files with, and what its command line imports
    *("trainingsample==0.3.0", "atomicwrites==1.4.1", "colorama==0.4.6"),
    *("httpx==0.28.1", "httpcore==1.0.9", "aiosqlite==0.22.1"),
    # it imports `Qwen3VLCausalLMOutputWithPast`, which transformers 5.23.0 no longer has
    "transformers==5.18.0",
)
SIDE: Final = 64
"""Pixels of a picture, the least that Flux's buckets are aligned to."""


def write_painting_model(folder: Path) -> None:
    """A Flux of one block of each kind, with its encoders and its VAE, as diffusers saves it."""
    import torch
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel

    torch.manual_seed(0)
    words, pieces = _clip_tokenizer(), _t5_tokenizer()
    denoiser = FluxTransformer2DModel(
        in_channels=64,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        guidance_embeds=True,
        axes_dims_rope=(4, 6, 6),
    )
    pipeline = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=_vae(),
        text_encoder=_clip(words),
        tokenizer=words,
        text_encoder_2=_t5(pieces),
        tokenizer_2=pieces,
        transformer=denoiser,
    )
    pipeline.to(torch.bfloat16).save_pretrained(folder)


def write_model_of_clips(folder: Path) -> None:
    """A Wan of two blocks, with its encoder and its VAE, as diffusers saves it."""
    import torch
    from diffusers import (
        AutoencoderKLWan,
        UniPCMultistepScheduler,
        WanPipeline,
        WanTransformer3DModel,
    )
    from transformers import UMT5Config, UMT5EncoderModel

    torch.manual_seed(0)
    pieces = _t5_tokenizer()
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
    words = UMT5Config(vocab_size=len(pieces), feed_forward_proj="gated-gelu", **sizes)
    denoiser = WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        text_dim=32,
        freq_dim=32,
        ffn_dim=64,
        num_layers=2,
        rope_max_seq_len=64,
    )
    pipeline = WanPipeline(
        tokenizer=pieces,
        text_encoder=UMT5EncoderModel(words),
        transformer=denoiser,
        vae=AutoencoderKLWan(base_dim=8, dim_mult=[1, 1, 1, 1], num_res_blocks=1),
        scheduler=UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    )
    pipeline.to(torch.bfloat16).save_pretrained(folder)


def _vae() -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(16,) * 4,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        norm_num_groups=8,
        latent_channels=16,
        scaling_factor=0.3611,
        shift_factor=0.1159,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )


def _clip_tokenizer() -> Any:
    from transformers import CLIPTokenizer

    letters = [letter + end for end in ("", "</w>") for letter in string.ascii_lowercase]
    tokens = (*letters, "<|startoftext|>", "<|endoftext|>")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)


def _clip(words: Any) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel

    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(words),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            projection_dim=32,
            bos_token_id=words.bos_token_id,
            eos_token_id=words.eos_token_id,
        )
    )


def _t5_tokenizer() -> Any:
    from transformers import T5TokenizerFast

    tokens = ("<pad>", "</s>", "<unk>", "▁", *string.ascii_lowercase)
    scores = [(token, -float(index)) for index, token in enumerate(tokens)]
    return T5TokenizerFast(vocab=scores, extra_ids=0, model_max_length=77)


def _t5(pieces: Any) -> Any:
    from transformers import T5Config, T5EncoderModel

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
    return T5EncoderModel(T5Config(vocab_size=len(pieces), feed_forward_proj="gated-gelu", **sizes))


def write_pictures(folder: Path, count: int) -> None:
    """So many square pictures of noise, each with its caption beside it."""
    from PIL import Image

    drawn = random.Random(str(folder.name))  # noqa: S311  pictures, not secrets
    folder.mkdir(parents=True)
    for index in range(count):
        noise = drawn.randbytes(3 * SIDE * SIDE)
        Image.frombytes("RGB", (SIDE, SIDE), noise).save(folder / f"{index}.png")
        (folder / f"{index}.txt").write_text(" ".join(drawn.choices(WORDS, k=4)), encoding="utf-8")


def write_clips(folder: Path, lengths: Sequence[int]) -> None:
    """A square clip of noise of each number of frames, with its caption beside it."""
    drawn = random.Random(0)  # noqa: S311  pictures, not secrets
    folder.mkdir(parents=True)
    for index, frames in enumerate(lengths):
        film = b"".join(_jpeg(drawn) for _ in range(frames))
        (folder / f"{index}.avi").write_bytes(film)  # pictures in a row are a film to a reader
        (folder / f"{index}.txt").write_text(" ".join(WORDS[:4]), encoding="utf-8")


def _jpeg(drawn: random.Random) -> bytes:
    from PIL import Image

    written = io.BytesIO()
    Image.frombytes("RGB", (SIDE, SIDE), drawn.randbytes(3 * SIDE * SIDE)).save(written, "JPEG")
    return written.getvalue()
