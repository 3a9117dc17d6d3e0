"""SimpleTuner's model families: their names by version, denoisers, flavours and LoRA modules.

A flavour names a repository and also changes behaviour (distilled FLUX gets an assistant LoRA, an
edit model a conditioning data set), so it is written if the repository has one. The tests compare
everything here with the releases themselves (`ModelRegistry.model_families()`).
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.ir.slots import Model
from tunec.compiler.resolve import catalogued
from tunec.schemas.caches import cached
from tunec.schemas.models.card import ModelCard
from tunec.schemas.models.catalogue import UnknownName, card, denoiser_cards

LAZY_REGISTRY: Final = "4.0.0"
"""The first release whose families come from `model_metadata.json`; 3.3.4 still registers
classes."""
SANA_ENDS: Final = "4.3.5"
"""The first release in which Sana does not start: helpers/models/common.py `_load_pipeline` gives
its pipeline no scheduler in 4.3.5 to 4.10.1, since helpers/models/sana/model.py
`requires_special_scheduler_setup`; 4.3.4 does."""
LAST_READ_BEFORE: Final = "3.1.6"
"""The last release before it whose sources and parser were read."""


class Family(Struct, frozen=True):
    """A value of `--model_family`."""

    name: str
    denoiser: str
    """The diffusers class of the trained component."""
    default: str
    """`DEFAULT_MODEL_FLAVOUR`: the flavour that is trained if neither path nor flavour is given.
    "": it differs between releases."""
    flavours: Mapping[str, str]
    """The repository of each flavour (`HUGGINGFACE_PATHS`)."""
    targets: tuple[str, ...]
    """`DEFAULT_LORA_TARGET` without the fused modules that only `--fuse_qkv_projections`
    creates."""
    since: str | None = None
    until: str | None = None
    added: Mapping[str, str] = {}
    """The first release read that has a flavour, for flavours that the family got later."""
    distinct: frozenset[str] = frozenset()
    """Flavours that a release without them would train as another one: with other text encoders,
    or without reference images."""

    def holds_at(self, version: Version) -> bool:
        """Whether the parser of that version has the family."""
        after = self.since is None or version >= Version(self.since)
        return after and (self.until is None or version < Version(self.until))

    def knows(self, flavour: str, version: Version) -> bool:
        """Whether that version has a flavour of the family."""
        return flavour not in self.added or version >= Version(self.added[flavour])


_QKVO: Final = ("to_k", "to_q", "to_v", "to_out.0")
_JOINT: Final = (*_QKVO, "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")
_WAN: Final = {
    "t2v-480p-1.3b-2.1": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
    "t2v-480p-14b-2.1": "Wan-AI/Wan2.1-T2V-14B-Diffusers",
    "i2v-14b-2.1": "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers",
    "i2v-14b-2.1-720p": "Wan-AI/Wan2.1-I2V-14B-720P-Diffusers",
    "i2v-14b-2.2-high": "Wan-AI/Wan2.2-I2V-A14B-Diffusers",
    "i2v-14b-2.2-low": "Wan-AI/Wan2.2-I2V-A14B-Diffusers",
    "flf2v-14b-2.1": "Wan-AI/Wan2.1-FLF2V-14B-720P-diffusers",
    "ti2v-5b-2.2": "Wan-AI/Wan2.2-TI2V-5B-Diffusers",
}
_SANA: Final = {
    "sana1.5-4.8b-1024": "Efficient-Large-Model/SANA1.5_4.8B_1024px_diffusers",
    "sana1.5-1.6b-1024": "Efficient-Large-Model/SANA1.5_1.6B_1024px_diffusers",
    "sana1.0-1.6b-2048": "Efficient-Large-Model/Sana_1600M_2Kpx_BF16_diffusers",
    "sana1.0-1.6b-1024": "Efficient-Large-Model/Sana_1600M_1024px_BF16_diffusers",
    "sana1.0-600m-1024": "Efficient-Large-Model/Sana_600M_1024px_diffusers",
    "sana1.0-600m-512": "Efficient-Large-Model/Sana_600M_512px_diffusers",
}
_PIXART: Final = {
    "600M-512": "PixArt-alpha/PixArt-Sigma-XL-2-512-MS",
    "600M-1024": "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS",
    "600M-2048": "PixArt-alpha/PixArt-Sigma-XL-2-2K-MS",
}

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
    Family(
        "flux2",
        "Flux2Transformer2DModel",
        "",
        {
            "dev": "black-forest-labs/FLUX.2-dev",
            "klein-4b": "black-forest-labs/FLUX.2-klein-base-4B",
            "klein-9b": "black-forest-labs/FLUX.2-klein-base-9B",
        },
        ("attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.to_qkv_mlp_proj"),
        added={"klein-4b": "4.0.6", "klein-9b": "4.0.6"},
        # helpers/models/flux2/model.py load_text_encoder: Qwen3 for Klein, else Mistral
        distinct=frozenset({"klein-4b", "klein-9b"}),
    ),
    Family(
        "qwen_image",
        "QwenImageTransformer2DModel",
        "",
        {
            "v1.0": "Qwen/Qwen-Image",
            "v2.0": "Qwen/Qwen-Image-2512",
            "edit-v1": "Qwen/Qwen-Image-Edit",
            "edit-v2": "Qwen/Qwen-Image-Edit-2509",
            "edit-v3": "Qwen/Qwen-Image-Edit-2511",
        },
        _QKVO,
        added={"v2.0": "4.0.6", "edit-v3": "3.3.4"},
        distinct=frozenset({"edit-v3"}),
    ),
    Family("wan", "WanTransformer3DModel", "t2v-480p-1.3b-2.1", _WAN, _QKVO),
    Family(
        "z_image",
        "ZImageTransformer2DModel",
        "",
        {"base": "TONGYI-MAI/Z-Image", "turbo": "TONGYI-MAI/Z-Image-Turbo"},
        # helpers/models/common.py: the targets where a model has none of its own
        _QKVO,
        since=LAZY_REGISTRY,
        added={"base": "4.0.6"},
    ),
    Family(
        "chroma",
        "ChromaTransformer2DModel",
        "base",
        {
            "base": "lodestones/Chroma1-Base",
            "hd": "lodestones/Chroma1-HD",
            "flash": "lodestones/Chroma1-Flash",
        },
        _QKVO,
    ),
    Family(
        "auraflow",
        "AuraFlowTransformer2DModel",
        "v0.3",
        {
            "pony": "purplesmartai/pony-v7-base",
            "v0.3": "terminusresearch/auraflow-v0.3",
            "v0.2": "fal/AuraFlow-v0.2",
            "v0.1": "fal/AuraFlow",
        },
        _JOINT,
    ),
    Family(
        "hidream",
        "HiDreamImageTransformer2DModel",
        "full",
        {
            "dev": "HiDream-ai/HiDream-I1-Dev",
            "full": "HiDream-ai/HiDream-I1-Full",
            "fast": "HiDream-ai/HiDream-I1-Fast",
        },
        _QKVO,
    ),
    Family(
        "ltxvideo",
        "LTXVideoTransformer3DModel",
        "0.9.5",
        {"0.9.5": "Lightricks/LTX-Video-0.9.5", "0.9.0": "Lightricks/LTX-Video"},
        _QKVO,
    ),
    Family(
        "lumina2",
        "Lumina2Transformer2DModel",
        "2.0",
        {"2.0": "Alpha-VLLM/Lumina-Image-2.0", "neta-lumina": "terminusresearch/neta-lumina-v1"},
        _QKVO,
    ),
    Family(
        "pixart",
        "PixArtTransformer2DModel",
        "900M-1024-v0.6",
        _PIXART,
        _QKVO,
        since=LAZY_REGISTRY,
    ),
    Family("sana", "SanaTransformer2DModel", "sana1.5-4.8b-1024", _SANA, _QKVO),
)


def named(name: str) -> Family | None:
    """The family of that name; the parser ignores case."""
    return next((each for each in FAMILIES if each.name == name.lower()), None)


def of_model(model: Model) -> Family | None:
    """The family of a plan's model.

    It follows from the repository, else from a denoiser that only one family has, else from the
    catalogue's card.
    """
    at = flavour_of(model)
    if at is not None:
        return at[0]
    fitting = [each for each in FAMILIES if each.denoiser == model.family]
    if len(fitting) == 1:
        return fitting[0]
    known = _card_of(model)
    return named(known.simpletuner_family or "") if known else None


def flavour_of(model: Model) -> tuple[Family, str] | None:
    """The family and flavour of a plan's model.

    Those of its repository, else of weights with the same modules: the catalogue's card names
    them for a repository, and a local copy has those of the model that it copies.
    """
    at = _published(model.path)
    if at is not None:
        return at
    known = _card_of(model)
    alike = (known.repo, *known.aliases, *known.siblings) if known else ()
    return next(filter(None, map(_published, alike)), None)


def edits(model: Model) -> bool:
    """Whether the flavour of a plan's model is one that takes reference images.

    Of a local copy it is that of a model with the same modules, which may generate from text alone.
    """
    known = _card_of(model)
    return known is not None and known.edits is not None


def _published(path: str) -> tuple[Family, str] | None:
    """The family and flavour with that repository; the hub ignores case in names."""
    for family in FAMILIES:
        for flavour, repository in family.flavours.items():
            if repository.lower() == path.lower():
                return family, flavour
    return None


@cached(64)
def _card_of(model: Model) -> ModelCard | None:
    """The catalogue's card of a repository; of a local copy, that of its class and size."""
    try:
        return card(model.path)
    except UnknownName:
        for each in denoiser_cards(model.family):
            if catalogued(each.repo).architecture.parameters == model.parameters:
                return each
        return None
