"""Axolotl's own reading of its YAML, up to where it would load a model.

Runs inside an environment that holds one release of axolotl. Verb: `read`.
"""

from collections.abc import Mapping
from typing import Any


def read(question: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of `config` on `devices` of compute capability `sm`: refused, or its values."""
    from axolotl.utils.config import validate_config
    from axolotl.utils.dict import DictDefault

    devices, sm = question.get("devices", 1), question.get("sm", 90)
    capabilities = {
        "bf16": sm >= 80,
        "fp8": sm >= 89,
        "tf32": sm >= 80,
        "n_gpu": devices,
        "n_node": 1,
        "compute_capability": f"sm_{sm}",
    }
    try:
        held = validate_config(
            DictDefault(dict(question["config"])),
            capabilities=capabilities,
            env_capabilities={"torch_version": "2.8.0"},
        )
    except Exception as refusal:  # noqa: BLE001  the refusal is the answer
        return {"refused": "read", "text": f"{type(refusal).__name__}: {refusal}"}
    return {"values": {key: _plain(value) for key, value in dict(held).items()}}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value.value if hasattr(value, "value") else value
    return [_plain(each) for each in value] if isinstance(value, list) else str(value)


VERBS = {"read": read}
