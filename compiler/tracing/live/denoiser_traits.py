"""Facts about diffusers' denoisers that their signatures do not show, one row per class.

Read in diffusers 0.42.1, `models/transformers` and `models/unets`; text tokens are
`max_sequence_length` of the class's own pipeline.
"""

from collections.abc import Mapping
from math import prod
from typing import Any, Final

import torch

from tunec.compiler.tracing.live.denoiser_clips import CLIPS
from tunec.compiler.tracing.live.denoiser_sample import Given, Maker, Traits, numbers, shared

_CLIP_TOKENS: Final = 77


def _pixart_conditions(given: Given) -> Mapping[str, Any]:
    shared = given.config.use_additional_conditions
    if shared is None:
        shared = given.config.sample_size == 128
    sizes = (given.zeros(2), given.zeros(1)) if shared else (None, None)
    return dict(zip(("resolution", "aspect_ratio"), sizes, strict=True))


def _hidream_llama(given: Given) -> torch.Tensor:
    layers, width = len(given.config.llama_layers), given.config.caption_channels[1]
    shape = layers, given.samples, given.grid.text, width
    return torch.zeros(*shape, dtype=given.dtype, device="meta")


def _kandinsky_places(given: Given) -> list[torch.Tensor]:
    grid = given.grid
    return [numbers(grid.frames), numbers(grid.rows), numbers(grid.columns)]


def _lumina_rotary(given: Given) -> torch.Tensor:
    width = given.config.hidden_size // given.config.num_attention_heads
    # pipelines/lumina: twice 192 places a side, of complex numbers
    return torch.zeros(384, 384, width // 2, dtype=torch.complex64, device="meta")


def _unet_conditions(given: Given) -> Mapping[str, Any] | None:
    """Pooled text and six numbers of size, if the config requires them."""
    kind = given.get("addition_embed_type")
    if kind != "text_time":
        return None
    width = given.config.projection_class_embeddings_input_dim
    pooled = width - 6 * given.config.addition_time_embed_dim
    return {"text_embeds": given.zeros(pooled), "time_ids": given.zeros(6)}


def _refiner_rotary(given: Given) -> tuple[torch.Tensor, torch.Tensor]:
    heads, width = given.config.num_attention_heads, given.config.attention_head_dim
    shape = given.samples, given.grid.image, heads * width
    return torch.zeros(*shape, device="meta"), torch.zeros(*shape, device="meta")


def _nucleus_share(given: Given) -> int:
    """Tokens of a batch that each expert chooses (transformer_nucleusmoe_image.py)."""
    factors, experts = given.config.capacity_factors, int(given.config.num_experts)
    factor = float(max(factors) if isinstance(factors, list | tuple) else factors)
    return -(-int(factor * given.grid.image) // experts) * given.samples


def _qwen_places(given: Given) -> torch.Tensor:
    """Where the picture stands: four of its tokens take one place behind those of the text."""
    mask = torch.zeros(given.samples, given.grid.text + given.grid.image // 4, dtype=torch.bool)
    mask[:, given.grid.text :] = True
    return mask


_FLUX: Final = Traits("packed", 512, pack=2)
_UNET: Final = Traits(
    "image",
    _CLIP_TOKENS,
    unit=8,
    more={"added_cond_kwargs": _unet_conditions},
)
_CLIPS: Final = Traits("video", _CLIP_TOKENS, unit=8, more={"added_cond_kwargs": _unet_conditions})
_KANDINSKY: Final[Mapping[str, Maker]] = {
    "visual_rope_pos": _kandinsky_places,
    "text_rope_pos": lambda given: numbers(given.grid.text),
}
TRAITS: Final[Mapping[str, Traits]] = {
    **CLIPS,
    "SD3Transformer2DModel": Traits(text=333),
    "FluxTransformer2DModel": _FLUX,
    # pipelines/flux2: 512 tokens, a VAE of 8 and two by two latents to a channel
    "Flux2Transformer2DModel": _FLUX,
    "ChromaTransformer2DModel": Traits(
        "packed",
        512,
        pack=2,
        # simpletuner 4.10.1 helpers/models/chroma/model.py: a mask of truth values
        more={"attention_mask": lambda given: given.integers(given.all_tokens).bool()},
        apart=frozenset({"distilled_guidance_layer.layers"}),
    ),
    "OvisImageTransformer2DModel": Traits("packed", 256, pack=2),
    "LongCatImageTransformer2DModel": Traits("packed", 512, pack=2),
    "BriaTransformer2DModel": Traits("packed", 128, pack=2),
    "BriaFiboTransformer2DModel": Traits(
        "packed",
        3000,
        16,
        more={
            "text_encoder_layers": lambda given: (
                [given.words(given.config.text_encoder_dim)]
                * (given.config.num_layers + given.config.num_single_layers)
            )
        },
    ),
    "BriaFibo2Transformer2DModel": Traits(
        text=2048,
        numbered="injection_layer_ids",
        fixed=lambda config: int(config.gist_max_text_len),
        more={
            "encoder_hidden_states": lambda given: given.zeros(
                1 + len(given.config.injection_layer_ids),
                given.grid.text,
                given.config.cap_feat_dim,
            )
        },
    ),
    "QwenImageTransformer2DModel": Traits("packed", 1024, pack=2),
    "QwenImage21Transformer2DModel": Traits(
        "packed", 1024, 16, unit=2, more={"img_mask": _qwen_places}
    ),
    "NucleusMoEImageTransformer2DModel": Traits(
        "packed",
        1024,
        pack=2,
        more={"img_shapes": lambda given: given.shapes[0]},
        counts=_nucleus_share,
    ),
    "AuraFlowTransformer2DModel": Traits(text=256),
    "PixArtTransformer2DModel": Traits(
        text=300,
        more={
            "added_cond_kwargs": _pixart_conditions,
            "encoder_attention_mask": lambda given: given.integers(given.grid.text),
        },
    ),
    # the autoencoder (AutoencoderDC) makes one element of 32 by 32 pixels
    "SanaTransformer2DModel": Traits(text=300, scale=32),
    "SanaVideoTransformer3DModel": Traits("video", 300),
    "SanaWMTransformer3DModel": Traits(
        "video",
        300,
        32,
        more={
            "encoder_hidden_states": lambda given: given.zeros(
                1, given.grid.text, given.text_width
            ),
            "timestep": lambda given: given.zeros(1, given.grid.frames),
            "mask": lambda given: given.integers(given.grid.text),
        },
    ),
    "SanaWMLTX2RefinerTransformer3DModel": Traits(
        "packed", 1024, 32, more={"video_rotary_emb": _refiner_rotary}
    ),
    "Lumina2Transformer2DModel": Traits(text=256),
    "LuminaNextDiT2DModel": Traits(
        text=256,
        more={
            "encoder_mask": lambda given: given.integers(given.grid.text),
            "image_rotary_emb": _lumina_rotary,
        },
    ),
    "CogView4Transformer2DModel": Traits(text=1024),
    "CogView3PlusTransformer2DModel": Traits(text=224),
    "GlmImageTransformer2DModel": Traits(
        text=2048,
        more={
            "prior_token_id": lambda given: shared(given.samples, given.grid.image),
            # which samples have none: as many as there are
            "prior_token_drop": lambda given: numbers(given.samples),
        },
    ),
    "HiDreamImageTransformer2DModel": Traits(
        text=128,
        square=True,
        # transformer_hidream_image.py, `patchify`
        oblong=lambda config: prod(config.max_resolution) // config.patch_size**2,
        experts="num_routed_experts",
        more={
            "encoder_hidden_states_t5": lambda given: given.words(given.config.caption_channels[0]),
            "encoder_hidden_states_llama3": _hidream_llama,
            "pooled_embeds": lambda given: given.zeros(given.config.text_emb_dim),
        },
    ),
    "ErnieImageTransformer2DModel": Traits(
        text=2048,
        scale=16,
        more={
            "text_bth": lambda given: given.words(given.config.text_in_dim),
            "text_lens": lambda given: given.integers(),
        },
    ),
    "DiTTransformer2DModel": Traits(
        text=0, square=True, more={"class_labels": lambda given: given.integers()}
    ),
    "OmniGenTransformer2DModel": Traits(
        text=256,
        more={
            "input_ids": lambda given: given.integers(given.grid.text),
            "input_img_latents": lambda _: [],
            "input_image_sizes": lambda _: {},
            "attention_mask": lambda given: given.integers(
                given.all_tokens + 1, given.all_tokens + 1
            ),
            "position_ids": lambda given: given.integers(given.all_tokens + 1),
        },
    ),
    "HunyuanDiT2DModel": Traits(
        text=_CLIP_TOKENS + 256,
        whole=True,
        fixed=lambda config: int(config.text_len + config.text_len_t5),
        more={
            "encoder_hidden_states": lambda given: given.zeros(
                given.config.text_len, given.config.cross_attention_dim
            ),
            "text_embedding_mask": lambda given: given.integers(given.config.text_len),
            "encoder_hidden_states_t5": lambda given: given.zeros(
                given.config.text_len_t5, given.config.cross_attention_dim_t5
            ),
            "text_embedding_mask_t5": lambda given: given.integers(given.config.text_len_t5),
            "image_meta_size": lambda given: given.integers(6),
            "style": lambda given: given.integers(),
            "image_rotary_emb": lambda given: given.rotary(
                given.grid.image, given.config.attention_head_dim
            ),
        },
    ),
    "HunyuanImageTransformer2DModel": Traits(text=1000, scale=32),
    "Ideogram4Transformer2DModel": Traits(
        "packed",
        256,
        pack=2,
        more={
            "hidden_states": lambda given: given.zeros(given.all_tokens, given.config.in_channels),
            "encoder_hidden_states": lambda given: given.zeros(
                given.all_tokens, given.config.llm_features_dim
            ),
            "position_ids": lambda given: given.integers(given.all_tokens, 3),
            "segment_ids": lambda given: given.integers(given.all_tokens),
            "indicator": lambda given: given.integers(given.all_tokens),
        },
    ),
    "Krea2Transformer2DModel": Traits(
        "packed",
        512,
        pack=2,
        more={
            "encoder_hidden_states": lambda given: given.zeros(
                given.grid.text, given.config.num_text_layers, given.config.text_hidden_dim
            ),
            "position_ids": lambda given: torch.zeros(given.all_tokens, 3, device="meta"),
        },
    ),
    "Kandinsky5Transformer3DModel": Traits("last", 256, more=_KANDINSKY),
    "Kandinsky6Transformer3DModel": Traits(
        "last",
        256,
        more={
            "hidden_states": lambda given: given.latents(
                "last",
                given.config.in_visual_dim * (2 if given.config.visual_cond else 1)
                + given.config.visual_cond,
            )
        },
    ),
    "Kandinsky6SRTransformer3DModel": Traits(
        "last",
        0,
        unit=8,
        more={
            "hidden_states": lambda given: given.latents("last", 2 * given.config.in_visual_dim + 1)
        },
    ),
    "ZImageTransformer2DModel": Traits(
        "image",
        512,
        more={
            "x": lambda given: list(given.zeros(given.config.in_channels, *given.latent).unbind(0)),
            "t": lambda given: given.zeros(),
            "cap_feats": lambda given: list(given.words(given.config.cap_feat_dim).unbind(0)),
        },
    ),
    "PriorTransformer": Traits(
        text=_CLIP_TOKENS,
        fixed=lambda config: int(config.num_embeddings),
        more={
            "hidden_states": lambda given: given.zeros(given.config.embedding_dim),
            "proj_embedding": lambda given: given.zeros(
                given.get("embedding_proj_dim", "embedding_dim")
            ),
            "encoder_hidden_states": lambda given: given.words(given.config.embedding_dim),
        },
    ),
    "UVit2DModel": Traits(
        text=_CLIP_TOKENS,
        more={
            "input_ids": lambda given: given.integers(given.grid.rows, given.grid.columns),
            "pooled_text_emb": lambda given: given.zeros(given.config.cond_embed_dim),
            "micro_conds": lambda given: given.zeros(5),
        },
    ),
    "UNet2DConditionModel": _UNET,
    "UNet2DModel": _UNET,
    "DreamLiteUNetModel": _UNET,
    "Kandinsky3UNet": Traits(
        text=128,
        unit=8,
        more={"encoder_attention_mask": lambda given: given.integers(given.grid.text)},
    ),
    "UNet3DConditionModel": _CLIPS,
    "UNetMotionModel": _CLIPS,
    "UNetSpatioTemporalConditionModel": Traits(
        "frames",
        1,
        unit=8,
        fixed=lambda _: 1,
        more={"added_time_ids": lambda given: given.zeros(3)},
    ),
    "I2VGenXLUNet": Traits(
        "video",
        _CLIP_TOKENS,
        unit=8,
        more={
            "fps": lambda given: given.zeros(),
            "image_latents": lambda given: given.latents("video", given.config.in_channels),
            "image_embeddings": lambda given: given.zeros(given.config.cross_attention_dim),
        },
    ),
    "UNet1DModel": Traits("sound", 0, unit=64),
    "StableCascadeUNet": Traits(
        text=4,
        scale=32,
        unit=4,
        fixed=lambda config: int(config.clip_seq),
        more={
            "timestep_ratio": lambda given: given.zeros(),
            "clip_text_pooled": lambda given: given.zeros(
                1, given.config.clip_text_pooled_in_channels
            ),
        },
    ),
    "T5FilmDecoder": Traits(
        "packed",
        2048,
        more={
            "encodings_and_masks": lambda given: [
                (given.words(given.config.d_model), given.integers(given.grid.text))
            ],
            "decoder_input_tokens": lambda given: given.zeros(
                given.config.targets_length, given.config.input_dims
            ),
            "decoder_noise_time": lambda given: given.zeros(),
        },
    ),
    "TransformerTemporalModel": Traits("image", 0),
}
"""Traits by class."""
