"""Weights that users name by the published file."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

_PUBLISHED: Final[Mapping[str, str]] = {
    "sd_xl_base_1.0": "stabilityai/stable-diffusion-xl-base-1.0",
    "sd_xl_base_1.0_0.9vae": "stabilityai/stable-diffusion-xl-base-1.0",
    "v1-5-pruned": "stable-diffusion-v1-5/stable-diffusion-v1-5",
    "v1-5-pruned-emaonly": "stable-diffusion-v1-5/stable-diffusion-v1-5",
    "flux1-dev": "black-forest-labs/FLUX.1-dev",
    "flux1-schnell": "black-forest-labs/FLUX.1-schnell",
    "sd3_medium": "stabilityai/stable-diffusion-3-medium-diffusers",
    "sd3.5_medium": "stabilityai/stable-diffusion-3.5-medium",
    "sd3.5_large": "stabilityai/stable-diffusion-3.5-large",
}
"""Names of files, without suffix, at the root of their makers' repositories."""
_ENDINGS: Final = (".safetensors", ".ckpt", ".sft")


def repository(path: str) -> str:
    """The repository of a published file; any other path unchanged."""
    name = PurePosixPath(path.replace("\\", "/"))
    known = _PUBLISHED.get(name.stem) if name.suffix in _ENDINGS else None
    return known or path
