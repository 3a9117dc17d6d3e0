"""SkyPilot's names for the devices of the catalogue."""

from collections.abc import Mapping
from typing import Final

_SAME: Final = {"a10": "A10", "a10g": "A10G", "a30": "A30", "a40": "A40", "b200": "B200"}
_SAME_TOO: Final = {"h200": "H200", "l4": "L4", "l40": "L40", "l40s": "L40S", "t4": "T4"}
NAMES: Final[Mapping[str, str]] = {
    **_SAME,
    **_SAME_TOO,
    "b300": "B300",
    "a100-sxm4-40g": "A100",
    "a100-sxm4-80g": "A100-80GB",
    "gh200-96g": "GH200",
    "h100-sxm": "H100",
    "h100-nvl": "H100-NVL",
    "mi300x": "MI300X",
    "p100-pcie-16g": "P100",
    "rtx-3060": "RTX3060",
    "rtx-3080": "RTX3080",
    "rtx-3090": "RTX3090",
    "rtx-4090": "RTX4090",
    "rtx-5090": "RTX5090",
    "rtx-6000-ada": "RTX6000-Ada",
    "rtx-pro-6000": "RTXPRO6000-WK",
    "rtx-pro-6000-server": "RTXPRO6000",
    "rtx-a4000": "RTXA4000",
    "rtx-a5000": "RTXA5000",
    "rtx-a6000": "RTXA6000",
    "v100-sxm2-16g": "V100",
    "v100-sxm2-32g": "V100-32GB",
}
"""skypilot-org/skypilot-catalog catalogs/v8/common/accelerators.csv `AcceleratorName`. Some clouds
offer an A100, H100 or V100 by PCIe under the name of the SXM device; no name selects only the PCIe
device, so that a plan for it cannot be expressed."""
MODELS: Final[Mapping[str, str]] = {name.lower(): model for model, name in NAMES.items()}
"""The device of a name, whose case SkyPilot ignores (`canonicalize_accelerator_name`)."""
