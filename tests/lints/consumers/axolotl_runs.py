"""Axolotl's own reading of its YAML, up to where it would load a model.

Runs inside an environment that holds one release of axolotl. Verbs: `read`, `strategy`.
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


def strategy(question: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the preference method has a function for `types` of data sets."""
    import sys
    from importlib import import_module
    from unittest.mock import MagicMock

    sys.modules.setdefault("colorama", MagicMock())  # for a debugger, which none asks for
    from axolotl.utils.dict import DictDefault

    load = import_module(f"axolotl.prompt_strategies.{question['method']}").load
    kept = DictDefault({"datasets": [{"path": "a", "type": {}}], "chat_template": "chatml"})
    found = {each: load(each, kept, dataset_idx=0) for each in question["types"]}
    return {"found": [each for each, held in found.items() if held is not None]}


VERBS = {"read": read, "strategy": strategy}
