"""The models that musubi-tuner builds, by the flags that select their classes.

`dit` is only a file of weights; the class and its shape follow from the script, which its network
module shows, and from `task` or `model_version`.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from tunec.compiler.target import Json

_WAN: Final[Mapping[str, str]] = {
    "t2v-1.3B": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
    "t2v-14B": "Wan-AI/Wan2.1-T2V-14B-Diffusers",
    "t2i-14B": "Wan-AI/Wan2.1-T2V-14B-Diffusers",
    "t2v-A14B": "Wan-AI/Wan2.2-T2V-A14B-Diffusers",
}
"""By `task` (kohya-ss/musubi-tuner 0.3.4 wan/configs/__init__.py `WAN_CONFIGS`)."""
_FLUX_2: Final[Mapping[str, str]] = {
    "dev": "black-forest-labs/FLUX.2-dev",
    "klein-4b": "black-forest-labs/FLUX.2-klein-4B",
    "klein-base-4b": "black-forest-labs/FLUX.2-klein-base-4B",
    "klein-9b": "black-forest-labs/FLUX.2-klein-9B",
    "klein-base-9b": "black-forest-labs/FLUX.2-klein-base-9B",
}
"""By `model_version` (kohya-ss/musubi-tuner 0.3.4 flux_2/flux2_utils.py `FLUX2_MODEL_INFO`)."""
_QWEN: Final[Mapping[str, str]] = {"original": "Qwen/Qwen-Image"}
"""By `model_version`; the others also take one or several reference images (qwen_image_utils.py
`add_model_version_args`)."""
FAMILIES: Final[Mapping[str, str]] = {
    "networks.lora": "HunyuanVideo",
    "networks.lora_wan": "Wan",
    "networks.lora_framepack": "FramePack",
    "networks.lora_flux": "FLUX.1 Kontext",
    "networks.lora_flux_2": "FLUX.2",
    "networks.lora_qwen_image": "Qwen-Image",
    "networks.lora_zimage": "Z-Image",
    "networks.lora_hv_1_5": "HunyuanVideo 1.5",
    "networks.lora_kandinsky": "Kandinsky 5",
    "networks.lora_krea2": "Krea 2",
    "networks.lora_ideogram4": "Ideogram 4",
    "networks.lora_hidream_o1": "HiDream-O1",
}
"""The family of each network module (kohya-ss/musubi-tuner 0.3.4 networks)."""
_KNOWN: Final = {
    "Wan": ("task", _WAN, "t2v-14B"),
    "FLUX.2": ("model_version", _FLUX_2, "dev"),
    "Qwen-Image": ("model_version", _QWEN, "original"),
    "Z-Image": ("", {"": "Tongyi-MAI/Z-Image"}, ""),
}
"""For families that another program trains: the flag, the repository by its value, and the
default."""


CHOICES: Final = ("task", "model_version")
"""The flags by which a script selects a model of its family."""
_PUBLISHED: Final[Mapping[str, str]] = {
    "qwen_image_bf16": "Qwen/Qwen-Image",
    "z_image_bf16": "Tongyi-MAI/Z-Image",
    "z_image_turbo_bf16": "Tongyi-MAI/Z-Image-Turbo",
}
"""Files of weights in the documentation (docs/qwen_image.md, docs/zimage.md), without suffix: a
script that trains whole models has no network, which would show the family."""


ELSEWHERE: Final[Mapping[str, str]] = {
    module: f"tunec knows no model of {family}, and plans none"
    for module, family in FAMILIES.items()
    if family not in _KNOWN
} | {
    f"networks.{kind.lower()}": f"{kind} is no adapter that a spec has" for kind in ("LoHa", "LoKr")
}
"""Network modules that cannot be carried over, with the reason."""


def family_of(found: Mapping[str, Json]) -> str | None:
    """The family whose network is trained; None if no known network is named."""
    module = str(found.get("network_module", "")).removeprefix("musubi_tuner.")
    return FAMILIES.get(module)


def repository(found: Mapping[str, Json]) -> str | None:
    """The repository with the model in diffusers' format; None if none is known."""
    if found.get("edit") or found.get("edit_plus"):
        return None
    held: Any = _KNOWN.get(family_of(found) or "")
    if held is None:
        return None if "network_module" in found else _whole(found)
    flag, names, usual = held
    name: str | None = names.get(str(found.get(flag, usual)) if flag else "")
    return name


def _whole(found: Mapping[str, Json]) -> str | None:
    """The repository for a script that trains whole models, by the version or the weights."""
    path = PurePosixPath(str(found.get("dit", "")).replace("\\", "/"))
    return _QWEN.get(str(found.get("model_version"))) or _PUBLISHED.get(path.stem)
