"""One micro batch for each kind of model, as its trainer would collate it."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Final

import torch

from tunec.compiler.analyses.architecture.image_tokens import latent_frames, vision_tokens
from tunec.compiler.analyses.memory.diffusion import TEXT_TOKENS, given_pictures, seen_tokens
from tunec.compiler.tracing.live.denoiser_inputs import inputs, patch_of, traits_of
from tunec.compiler.tracing.live.denoiser_sample import Given, Grid
from tunec.compiler.tracing.live.denoiser_traits import TRAITS
from tunec.compiler.tracing.live.denoiser_values import answered
from tunec.compiler.tracing.live.model_builder import DTYPES
from tunec.compiler.tracing.live.sources import FEATURES, source_of
from tunec.compiler.tracing.subject import Subject, Untraceable

Batch = dict[str, Any]


def batch_of(subject: Subject, model: Any) -> Batch:
    """The inputs of one forward pass, on the meta device except for small grids of image sizes."""
    kind = subject.workload.architecture.kind
    if kind == "diffusion":
        return _latents(subject, model)
    data, micro = subject.workload.data, subject.layout.batch.micro
    asked = subject.workload.preference
    rows = micro * (asked.sequences if asked is not None else 1)
    tokens = torch.zeros(rows, data.sequence + data.image_tokens, dtype=torch.long, device="meta")
    ways = subject.layout.parallel.sequence
    if ways > 1:
        return _part_of_sequence(subject, rows, tokens.shape[1] // ways)
    is_labelled = kind == "sequence-classifier"
    labels = tokens.new_zeros(rows) if is_labelled else torch.zeros_like(tokens)
    if subject.workload.architecture.source:
        return {FEATURES: _sound(subject, model, rows), "labels": labels}
    batch: Batch = {"input_ids": tokens, "labels": labels}
    if subject.is_padded:
        batch["attention_mask"] = torch.ones_like(tokens)
    if kind == "vision-language" and data.images:
        batch |= _pixels(subject, model)
    return batch


def _sound(subject: Subject, model: Any, samples: int) -> torch.Tensor:
    """The encoder's sound, in fp32 as processors give it, or as DeepSpeed's engine casts it."""
    states = subject.layout.states
    held = states.weights if subject.is_adapted else states.trainable
    dtype = torch.float32 if states.autocast else DTYPES[held]
    return _float(samples, *source_of(model).shape, dtype=dtype)


def _part_of_sequence(subject: Subject, rows: int, length: int) -> Batch:
    """A rank's batch from `UlyssesSPDataLoaderAdapter` (deepspeed 0.19.8), with shifted labels."""
    names = ["input_ids", "position_ids", "shift_labels"]
    names += ["attention_mask"] if subject.is_padded else []
    return {name: torch.zeros(rows, length, dtype=torch.long, device="meta") for name in names}


def image_elements(subject: Subject) -> int:
    """The number of places in the micro batch's sequences that images fill."""
    return subject.workload.data.image_tokens * subject.layout.batch.micro


def _pixels(subject: Subject, model: Any) -> Batch:
    family = subject.family
    if family not in _COLLATORS:
        raise Untraceable(f"tracing does not support images for {family!r}")
    found: Batch = _COLLATORS[family](subject, model)
    return found


def _images(subject: Subject) -> int:
    return subject.workload.data.images * subject.layout.batch.micro


def _square(subject: Subject, model: Any) -> Batch:
    """LLaVA, Gemma 3, GOT-OCR: each image becomes one square."""
    side = model.config.vision_config.image_size
    return {"pixel_values": _float(_images(subject), 3, side, side)}


def _gemma3(subject: Subject, model: Any) -> Batch:
    data, micro = subject.workload.data, subject.layout.batch.micro
    types = torch.zeros(micro, data.sequence + data.image_tokens, dtype=torch.long, device="meta")
    return _square(subject, model) | {"token_type_ids": types}


def _squares(subject: Subject, _: Any) -> Batch:
    """Gemma 3n: each image becomes one square, whose side only its processor knows."""
    data = subject.workload.data
    side = data.image_width
    types = torch.zeros(
        subject.layout.batch.micro,
        data.sequence + data.image_tokens,
        dtype=torch.long,
        device="meta",
    )
    pixels = _float(_images(subject), 3, side, side)
    return {"pixel_values": pixels, "token_type_ids": types}


def _tiles(subject: Subject, _: Any) -> Batch:
    """InternVL, Llama 4, Aya Vision: tiles of all images in one batch."""
    rule, data = subject.workload.architecture.images, subject.workload.data
    side = rule.image_size if rule else 448
    tiles = len(vision_tokens(rule, data.image_width, data.image_height)) if rule else 1
    return {"pixel_values": _float(_images(subject) * tiles, 3, side, side)}


def _llava_next(subject: Subject, model: Any) -> Batch:
    """LLaVA-NeXT: an overview and tiles of each image, and the image's size."""
    rule, data = subject.workload.architecture.images, subject.workload.data
    side = model.config.vision_config.image_size
    tiles = len(vision_tokens(rule, data.image_width, data.image_height)) if rule else 1
    sizes = torch.tensor([[data.image_height, data.image_width]] * _images(subject))
    return {
        "pixel_values": _float(_images(subject), tiles, 3, side, side),
        "image_sizes": sizes,
    }


def _lfm2_vl(subject: Subject, model: Any) -> Batch:
    """LFM2-VL: padded patches of tiles and whole pictures, and the grid of each."""
    rule, data = subject.workload.architecture.images, subject.workload.data
    each = vision_tokens(rule, data.image_width, data.image_height) if rule else (1024,)
    count, patch = _images(subject) * len(each), model.config.vision_config.patch_size
    side = math.isqrt(each[0])
    return {
        "pixel_values": _float(count, each[0], 3 * patch**2),
        "spatial_shapes": torch.tensor([[side, side]] * count),
        "pixel_attention_mask": torch.ones(count, each[0], dtype=torch.long),
    }


def _qwen(subject: Subject, model: Any) -> Batch:
    """Qwen2-VL and later, GLM-OCR: patches of all images in one row, and the grid of each.

    Positions in time, height and width are handed over: the model would make them of the types of
    tokens, which it reads one by one (transformers 5.23 `compute_3d_position_ids`).
    """
    vision, data = model.config.vision_config, subject.workload.data
    width, height = _picture(subject, vision.spatial_merge_size)
    patches = data.vision_tokens * subject.layout.batch.micro
    channels = getattr(vision, "in_channels", 3) or 3
    features = channels * vision.temporal_patch_size * vision.patch_size**2
    grid = torch.tensor([[1, height, width]] * _images(subject))
    pixels = _float(patches, features)
    return {"pixel_values": pixels, "image_grid_thw": grid, "position_ids": _places(subject)}


def _places(subject: Subject) -> torch.Tensor:
    """Positions of every token in time, height and width."""
    micro, data = subject.layout.batch.micro, subject.workload.data
    length = data.sequence + data.image_tokens
    return torch.zeros(3, micro, length, dtype=torch.long, device="meta")


def _pixtral(subject: Subject, model: Any) -> Batch:
    """Mistral Small 3.1: pictures padded to the largest, and the size of each."""
    high, wide = _picture(subject, model.config.spatial_merge_size)
    patch = model.config.vision_config.patch_size
    sizes = torch.tensor([[high * patch, wide * patch]] * _images(subject))
    pixels = _float(_images(subject), 3, high * patch, wide * patch)
    return {"pixel_values": pixels, "image_sizes": sizes}


def _gemma4(subject: Subject, model: Any) -> Batch:
    """Gemma 4: patches of each picture, with the position of each; padding has none."""
    vision, data = model.config.vision_config, subject.workload.data
    merge, each = vision.pooling_kernel_size, max(data.images, 1)
    high, wide = _grid(data.image_tokens // each * merge**2, merge)
    places = torch.full((_images(subject), data.vision_tokens // each, 2), -1)
    grid = torch.cartesian_prod(torch.arange(wide), torch.arange(high))
    places[:, : len(grid)] = grid
    micro, length = subject.layout.batch.micro, data.sequence + data.image_tokens
    return {
        "pixel_values": _float(*places.shape[:2], 3 * vision.patch_size**2),
        "image_position_ids": places,
        "mm_token_type_ids": torch.zeros(micro, length, dtype=torch.long, device="meta"),
    }


def _kimi(subject: Subject, model: Any) -> Batch:
    """Kimi K2.5: patches of all pictures in one row, and the grid of each."""
    high, wide = _picture(subject, 2)
    patch, count = model.config.vision_config.patch_size, _images(subject)
    grid = torch.tensor([[1, high, wide]] * count)
    return {
        "pixel_values": _float(high * wide * count, 3, patch, patch),
        "image_grid_thw": grid,
    }


def _paddleocr(subject: Subject, model: Any) -> Batch:
    """PaddleOCR-VL: the same, with positions as Qwen2-VL has them."""
    return {**_kimi(subject, model), "position_ids": _places(subject)}


def _picture(subject: Subject, merge: int) -> tuple[int, int]:
    """The number of patches per side of each picture."""
    data = subject.workload.data
    return _grid(data.vision_tokens // max(data.images, 1), merge)


def _grid(patches: int, merge: int) -> tuple[int, int]:
    """A grid of so many patches, with sides that the merger divides, as square as possible."""
    sides = [n for n in range(merge, math.isqrt(patches) + 1, merge) if patches % (n * merge) == 0]
    height = sides[-1] if sides else merge
    return patches // height, height


_COLLATORS: Final = {
    "llava": _square,
    "gemma3": _gemma3,
    "internvl": _tiles,
    "llava_next": _llava_next,
    "qwen2_vl": _qwen,
    "qwen2_5_vl": _qwen,
    "qwen2_5_omni_thinker": _qwen,
    "qwen3_vl": _qwen,
    "qwen3_vl_moe": _qwen,
    "qwen3_5": _qwen,
    "qwen3_5_moe": _qwen,
    "glm4v": _qwen,
    "glm4v_moe": _qwen,
    "paligemma": _gemma3,
    "gemma3n": _squares,
    "mistral3": _pixtral,
    "gemma4": _gemma4,
    "llama4": _tiles,
    "kimi_k25": _kimi,
    "aya_vision": _tiles,
    "got_ocr2": _square,
    "glm_ocr": _qwen,
    "paddleocr_vl": _paddleocr,
    "llava_onevision": _llava_next,
    "lfm2_vl": _lfm2_vl,
}


def _float(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype, device="meta")


def values_of(subject: Subject) -> AbstractContextManager[None]:
    """A context that answers a derived denoiser's requests for values (`denoiser_values`)."""
    model = subject.workload.architecture
    traits = TRAITS.get(subject.family)
    if model.denoiser is None or traits is None:
        return nullcontext()
    beside = given_pictures(subject.workload)
    given = Given(SimpleNamespace(**subject.config), *_sample(subject), (1, 1, 1), beside)
    return answered(given, traits)


def _sample(subject: Subject) -> tuple[Grid, int, torch.dtype]:
    """Tokens of a sample of a derived denoiser, how many samples there are, and their dtype."""
    data, model = subject.workload.data, subject.workload.architecture
    side = model.latent_scale * model.latent_patch
    text = model.denoiser.text_tokens + seen_tokens(subject.workload) if model.denoiser else 0
    frames = latent_frames(model, data.frames)
    grid = Grid(frames, data.image_height // side, data.image_width // side, text)
    return grid, subject.layout.batch.micro, DTYPES[subject.workload.precision.compute]


def _latents(subject: Subject, denoiser: Any) -> Batch:
    """Noisy latents of the VAE's shape, text states and time."""
    if subject.workload.architecture.denoiser is not None:
        # PEFT wraps a class that takes no adapters of its own
        denoiser = denoiser.get_base_model() if hasattr(denoiser, "get_base_model") else denoiser
        patch = patch_of(denoiser.config, traits_of(subject.family, denoiser.forward))
        beside = given_pictures(subject.workload)
        return inputs(denoiser, Given(denoiser.config, *_sample(subject), patch, beside))
    return {**_ruled(subject), "return_dict": False}


def _sizes(config: Mapping[str, Any], zeros: Callable[..., torch.Tensor]) -> Batch:
    """Pooled text, and six numbers of size and crop, each of which is embedded."""
    width = config["projection_class_embeddings_input_dim"]
    return {
        "text_embeds": zeros(width - 6 * config["addition_time_embed_dim"]),
        "time_ids": zeros(6),
    }


def _ruled(subject: Subject) -> Batch:
    """The batch of a denoiser whose architecture a rule derives."""
    config, data = subject.config, subject.workload.data
    micro, model = subject.layout.batch.micro, subject.workload.architecture
    dtype = DTYPES[subject.workload.precision.compute]
    high, wide = data.image_height // model.latent_scale, data.image_width // model.latent_scale

    def zeros(*shape: int) -> torch.Tensor:
        return _float(micro, *shape, dtype=dtype)

    family = config["_class_name"]
    if family == "UNet2DConditionModel":
        asked = config.get("addition_embed_type") is not None
        text = zeros(
            max(level.text_tokens for level in model.unet),
            config.get("encoder_hid_dim") or config["cross_attention_dim"],
        )
        return {
            "sample": zeros(model.latent_channels, high, wide),
            "timestep": zeros(),
            "encoder_hidden_states": text,
            "added_cond_kwargs": _sizes(config, zeros) if asked else None,
        }
    text = zeros(TEXT_TOKENS[family], config["joint_attention_dim"])
    given = {"timestep": zeros(), "encoder_hidden_states": text}
    given["pooled_projections"] = zeros(config["pooled_projection_dim"])
    if family == "SD3Transformer2DModel":
        return given | {"hidden_states": zeros(model.latent_channels, high, wide)}
    tokens = (high // 2) * (wide // 2) * (1 + given_pictures(subject.workload))
    return given | {
        "hidden_states": zeros(tokens, config["in_channels"]),
        "guidance": zeros() if config.get("guidance_embeds") else None,
        "img_ids": torch.zeros(tokens, 3, device="meta"),
        "txt_ids": torch.zeros(TEXT_TOKENS[family], 3, device="meta"),
    }
