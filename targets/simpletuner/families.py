"""SimpleTuner's model families: their names by version, denoisers, flavours and LoRA modules.

A flavour names a repository and switches behaviour besides (distilled FLUX gets an assistant LoRA,
an edit model a conditioning data set), so it is written wherever the repository has one. Everything
here is compared with the releases themselves (`ModelRegistry.model_families()`) by the tests.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from packaging.version import Version

from tunec.schemas.models.catalogue import UnknownName, card

LAZY_REGISTRY: Final = "4.0.0"
"""First release whose families come from `model_metadata.json`; 3.3.4 still registers classes."""


class Family(Struct, frozen=True):
    """A value of `--model_family`."""

    name: str
    denoiser: str
    """The diffusers class of the trained component."""
    default: str
    """`DEFAULT_MODEL_FLAVOUR`: what is trained when neither path nor flavour is given."""
    flavours: Mapping[str, str]
    """Repository by flavour (`HUGGINGFACE_PATHS`), those that both releases hold."""
    targets: tuple[str, ...]
    """`DEFAULT_LORA_TARGET`, less the fused names that only `--fuse_qkv_projections` makes."""
    until: str | None = None

    def holds_at(self, version: Version) -> bool:
        """Whether the parser of that version knows the family."""
        return self.until is None or version < Version(self.until)


_QKVO: Final = ("to_k", "to_q", "to_v", "to_out.0")

FAMILIES: Final = (
    Family(
        "flux",
        "FluxTransformer2DModel",
        "krea",
        {
            "dev": "black-forest-labs/flux.1-dev",
            "krea": "black-forest-labs/flux.1-krea-dev",
            "schnell": "black-forest-labs/flux.1-schnell",
            "kontext": "black-forest-labs/flux.1-kontext-dev",
            "fluxbooru": "terminusresearch/fluxbooru-v0.3",
            "libreflux": "jimmycarter/LibreFlux-SimpleTuner",
        },
        # helpers/models/flux/model.py get_lora_target_layers: `--flux_lora_target=all`, the default
        (*_QKVO, "add_k_proj", "add_q_proj", "add_v_proj", "to_add_out"),
    ),
    Family(
        "sd3",
        "SD3Transformer2DModel",
        "medium",
        {
            "medium": "stabilityai/stable-diffusion-3.5-medium",
            "large": "stabilityai/stable-diffusion-3.5-large",
        },
        _QKVO,
    ),
    Family(
        "sdxl",
        "UNet2DConditionModel",
        "base-1.0",
        {
            "base-1.0": "stabilityai/stable-diffusion-xl-base-1.0",
            "refiner-1.0": "stabilityai/stable-diffusion-xl-refiner-1.0",
            "base-0.9": "stabilityai/stable-diffusion-xl-base-0.9",
            "refiner-0.9": "stabilityai/stable-diffusion-xl-refiner-0.9",
        },
        _QKVO,
    ),
    Family(
        "sd1x",
        "UNet2DConditionModel",
        "dreamshaper",
        {
            "1.5": "stable-diffusion-v1-5/stable-diffusion-v1-5",
            "1.4": "CompVis/stable-diffusion-v1-4",
            "dreamshaper": "Lykon/dreamshaper-8",
        },
        _QKVO,
    ),
    Family(
        "sd2x",
        "UNet2DConditionModel",
        "pseudoflex-v2",
        {
            "2.1": "stabilityai/stable-diffusion-2-1",
            "2.0": "stabilityai/stable-diffusion-2-0",
            "pseudoflex-v2": "bghira/pseudo-flex-v2",
        },
        _QKVO,
        until=LAZY_REGISTRY,
    ),
    Family(
        "kolors",
        "UNet2DConditionModel",
        "1.0",
        {"1.0": "terminusresearch/kwai-kolors-1.0"},
        _QKVO,
    ),
)


def named(name: str) -> Family | None:
    """The family of that name, as the parser spells it (it lowers what is given)."""
    return next((each for each in FAMILIES if each.name == name.lower()), None)


def of_model(path: str, denoiser: str) -> Family | None:
    """The family of a model: by its repository, else by a denoiser that only one family has."""
    at = flavour_of(path)
    if at is not None:
        return at[0]
    fitting = [each for each in FAMILIES if each.denoiser == denoiser]
    return fitting[0] if len(fitting) == 1 else _of_card(path)


def _of_card(path: str) -> Family | None:
    """The family that the catalogue has for a repository: another copy of a flavour's weights."""
    try:
        known = card(path).simpletuner_family
    except UnknownName:
        return None
    return named(known) if known else None


def flavour_of(path: str) -> tuple[Family, str] | None:
    """The family and flavour whose repository a path is; the hub ignores case in names."""
    for family in FAMILIES:
        for flavour, repository in family.flavours.items():
            if repository.lower() == path.lower():
                return family, flavour
    return None
