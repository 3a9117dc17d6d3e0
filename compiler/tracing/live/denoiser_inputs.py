"""The inputs of a diffusion transformer's forward pass, by its signature and its config.

Most arguments have one name and one meaning in all classes of diffusers 0.42.1 (`models`); facts
that a signature does not show are in a row of `TRAITS`.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from tunec.compiler.tracing.live.denoiser_sample import Given, Maker, Traits
from tunec.compiler.tracing.live.denoiser_traits import TRAITS
from tunec.compiler.tracing.subject import Untraceable

_IMAGE_STATES: Final = 257
"""States of one picture by CLIP's ViT-H/14 at 224 pixels: 16 by 16 and the class's own."""


def _size(given: Given) -> torch.Tensor:
    return given.zeros(2)


def _time(given: Given) -> torch.Tensor:
    return given.zeros()


def _image_states(given: Given) -> torch.Tensor | None:
    width = given.get("image_dim")
    return None if width is None else given.zeros(_IMAGE_STATES, width)


_USUAL: Final[Mapping[str, Maker]] = {
    "encoder_hidden_states": lambda given: given.words(given.text_width),
    "encoder_hidden_states_image": _image_states,
    **dict.fromkeys(("timestep", "timesteps", "timestep_r", "r_timestep", "sigma"), _time),
    "guidance": lambda given: given.zeros() if given.get("guidance_embeds") else None,
    "pooled_projections": lambda given: given.of_width(
        "pooled_projection_dim", "pooled_projection_type_dim", "in_text_dim2"
    ),
    "encoder_attention_mask": lambda given: given.integers(given.grid.text),
    "encoder_hidden_states_mask": lambda _: None,
    "img_ids": lambda given: given.places(given.tokens),
    "txt_ids": lambda given: given.places(given.grid.text),
    "img_shapes": lambda given: given.shapes,
    "num_frames": lambda given: given.latent[0],
    "height": lambda given: given.latent[1],
    "width": lambda given: given.latent[2],
    "original_size": _size,
    "target_size": _size,
    "crop_coords": _size,
}
"""Arguments by name whose meaning is the same in all classes."""
_LEFT_OUT: Final = frozenset({"timestep_r", "r_timestep", "sigma"})
"""Arguments that are passed only if a class requires them."""


def traits_of(family: str, forward: Callable[..., Any]) -> Traits:
    """The row of a class, or traits inferred from its name and signature."""
    if family in TRAITS:
        return TRAITS[family]
    if "img_ids" in inspect.signature(forward).parameters:
        return Traits("packed", pack=2)
    return Traits("video" if "3D" in family else "image")


def patch_of(config: Any, traits: Traits) -> tuple[int, int, int]:
    """Latent elements of one token over time, height and width."""
    patch = getattr(config, "patch_size", None) or 1
    if isinstance(patch, list | tuple):
        own = (*patch,) if len(patch) == 3 else (1, *patch)
        return int(own[0]), int(own[1]), int(own[2])
    time = getattr(config, "patch_size_t", None) or 1
    if traits.layout == "sound":
        return patch, 1, 1
    return (time, patch, patch) if traits.layout != "packed" else (1, 1, 1)


def inputs(model: torch.nn.Module, given: Given) -> dict[str, Any]:
    """The arguments of one forward pass. Raises Untraceable if one has no known meaning."""
    family = type(model).__name__
    traits = traits_of(family, model.forward)
    made: dict[str, Any] = {}
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if name in traits.without or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if name == "return_dict":
            made[name] = False
            continue
        demanded = parameter.default is inspect.Parameter.empty
        if name in traits.more:
            made[name] = traits.more[name](given)
        elif name in ("hidden_states", "sample"):
            made[name] = given.latents(traits.layout, given.channels)
        elif name in _USUAL and (demanded or _wanted(name)):
            made[name] = _USUAL[name](given)
        elif demanded:
            raise Untraceable(f"the forward pass of {family} takes {name}, which is not known")
    return {name: value for name, value in made.items() if value is not None}


def _wanted(name: str) -> bool:
    """Whether an optional argument is passed: all but masks of whole texts."""
    return not (name.endswith("_mask") or name in _LEFT_OUT)
