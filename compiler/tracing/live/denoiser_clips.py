"""What the signatures of diffusers' denoisers of clips and of sound do not tell, a row a class.

Read in diffusers 0.42.1, `models/transformers`.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch

from tunec.compiler.tracing.live.denoiser_sample import Given, Maker, Traits, numbers, shared

_SOUND_TOKENS: Final = 126
"""Sound tokens beside a clip: about five seconds, at 25 tokens per second."""


def _fixed_places(config: Any) -> int | None:
    """CogVideoX: a table of positions holds those of the text, unless they are rotary."""
    rotary = config.use_rotary_positional_embeddings
    return None if rotary else int(config.max_text_seq_length)


def _cogvideo_rotary(given: Given) -> Any:
    if not given.config.use_rotary_positional_embeddings:
        return None
    return given.rotary(given.grid.image, given.config.attention_head_dim)


def _stable_audio_rotary(given: Given) -> tuple[torch.Tensor, torch.Tensor]:
    # pipelines/stable_audio: half of a head turns, and one token is the condition's
    return given.rotary(given.grid.image + 1, given.config.attention_head_dim // 2)


def _control(given: Given) -> torch.Tensor:
    return given.latents("video", given.config.vace_in_channels)


def _history(*, frames: int) -> tuple[Maker, Maker]:
    """Earlier frames, and their positions in the clip."""
    return (
        lambda given: given.zeros(given.config.in_channels, frames, *given.latent[1:]),
        lambda _: numbers(frames),
    )


_WAN: Final = Traits("video", 512, time=4)
# pipelines/hunyuan_video/pipeline_hunyuan_video_framepack.py, `history_sizes`: the picture that is
# given and the last frame, then two and sixteen before, which become tokens of more pixels each
_CLEAN, _LATE, _EARLY = (_history(frames=count) for count in (2, 2, 16))
CLIPS: Final[Mapping[str, Traits]] = {
    # the autoencoder of Wan 2.2's 5B has 48 channels, and makes one element of 16 by 16 pixels:
    # scripts/convert_wan_to_diffusers.py, vae22_diffusers_config (z_dim, scale_factor_spatial)
    "WanTransformer3DModel": Traits("video", 512, time=4, finer={48: 16}),
    "WanVACETransformer3DModel": Traits(
        "video",
        512,
        placed=("vace_layers", "vace_blocks"),
        more={
            "control_hidden_states": _control,
            "control_hidden_states_scale": lambda given: torch.ones(
                len(given.config.vace_layers), device="meta"
            ),
        },
    ),
    "SkyReelsV2Transformer3DModel": _WAN,
    "ChronoEditTransformer3DModel": _WAN,
    "AnyFlowTransformer3DModel": Traits(
        "frames",
        512,
        more=dict.fromkeys(
            ("timestep", "r_timestep"), lambda given: given.zeros(given.grid.frames)
        ),
    ),
    "JoyImageEditPlusTransformer3DModel": Traits(
        "packed",
        1024,
        more={
            "hidden_states": lambda given: given.zeros(
                given.grid.image, given.config.in_channels, *given.patch
            ),
            "shape_list": lambda given: given.shapes,
        },
    ),
    "HunyuanVideoTransformer3DModel": Traits("video", 256, time=4),
    "HunyuanVideoFramepackTransformer3DModel": Traits(
        "video",
        256,
        unit=4,
        more={
            # one picture by SigLIP
            "image_embeds": lambda given: given.zeros(729, given.config.image_proj_dim),
            "indices_latents": lambda given: numbers(given.grid.frames),
            "latents_clean": _CLEAN[0],
            "indices_latents_clean": _CLEAN[1],
            "latents_history_2x": _LATE[0],
            "indices_latents_history_2x": _LATE[1],
            "latents_history_4x": _EARLY[0],
            "indices_latents_history_4x": _EARLY[1],
        },
    ),
    "HunyuanVideo15Transformer3DModel": Traits(
        "video",
        1000,
        16,
        values=True,
        more={
            # pipelines/hunyuan_video1_5: glyphs by ByT5, and one picture by SigLIP
            "encoder_hidden_states_2": lambda given: given.zeros(
                256, given.config.text_embed_2_dim
            ),
            "encoder_attention_mask_2": lambda given: given.integers(256),
            "image_embeds": lambda given: given.zeros(729, given.config.image_embed_dim),
        },
    ),
    "CogVideoXTransformer3DModel": Traits(
        "frames",
        226,
        time=4,
        fixed=_fixed_places,
        more={"image_rotary_emb": _cogvideo_rotary},
    ),
    "ConsisIDTransformer3DModel": Traits(
        "frames",
        226,
        time=4,
        fixed=_fixed_places,
        more={"image_rotary_emb": _cogvideo_rotary},
    ),
    # a VAE of 32 in space and 8 in time, whose elements are tokens as they are
    "LTXVideoTransformer3DModel": Traits("packed", 128, 32, time=8),
    "LTX2VideoTransformer3DModel": Traits(
        "packed",
        1024,
        32,
        more={
            "audio_hidden_states": lambda given: given.zeros(
                _SOUND_TOKENS, given.config.audio_in_channels
            ),
            "audio_encoder_hidden_states": lambda given: given.words(given.text_width),
            "audio_num_frames": lambda _: _SOUND_TOKENS,
        },
    ),
    "MiniMaxH3Transformer3DModel": Traits(
        "packed",
        512,
        more={
            "hidden_states": lambda given: given.zeros(
                given.grid.image, given.config.in_channels * 4
            ),
            "audio_hidden_states": lambda given: given.zeros(
                _SOUND_TOKENS, given.config.audio_in_channels
            ),
            "timestep": lambda _: torch.zeros(1, device="meta"),
            "timestep_indices": lambda given: shared(given.all_tokens + _SOUND_TOKENS),
            "token_tags": lambda given: shared(given.all_tokens + _SOUND_TOKENS),
            "position_ids": lambda given: shared(given.all_tokens + _SOUND_TOKENS, 3),
            "video_indices": lambda given: numbers(given.grid.image),
            "audio_indices": lambda _: numbers(_SOUND_TOKENS),
            "text_indices": lambda given: numbers(given.grid.text),
        },
    ),
    "MochiTransformer3DModel": Traits("video", 256, time=6),
    "AllegroTransformer3DModel": Traits("video", 512, time=4),
    "LatteTransformer3DModel": Traits("video", 120),
    "CosmosTransformer3DModel": Traits(
        "video",
        512,
        more={
            "padding_mask": lambda given: torch.zeros(
                1, 1, *given.latent[1:], dtype=given.dtype, device="meta"
            ),
            "fps": lambda _: 24,
        },
    ),
    "EasyAnimateTransformer3DModel": Traits("video", 256),
    "AceStepTransformer1DModel": Traits(
        "packed",
        256,
        more={
            "hidden_states": lambda given: given.zeros(
                given.grid.image * given.config.patch_size, given.config.audio_acoustic_hidden_dim
            ),
            "context_latents": lambda given: given.zeros(
                given.grid.image * given.config.patch_size,
                given.config.in_channels - given.config.audio_acoustic_hidden_dim,
            ),
            "encoder_hidden_states": lambda given: given.words(
                given.get("encoder_hidden_size", "hidden_size")
            ),
        },
    ),
    "LongCatAudioDiTTransformer": Traits("packed", 512),
    "StableAudioDiTModel": Traits(
        "sound",
        128,
        more={
            "global_hidden_states": lambda given: given.zeros(
                1, given.config.global_states_input_dim
            ),
            "rotary_embedding": _stable_audio_rotary,
        },
    ),
    "StableAudio3DiTModel": Traits(
        "sound",
        256,
        more={
            "global_hidden_states": lambda given: given.zeros(given.config.global_cond_dim),
            "local_add_cond": lambda given: given.latents("sound", given.config.local_add_cond_dim),
        },
    ),
    "MiniMaxMusic3Transformer1DModel": Traits(
        "sound",
        0,
        more={
            "encoder_hidden_states": lambda given: given.zeros(
                given.grid.image, given.config.condition_dim
            )
        },
    ),
}
"""Traits by class."""
