"""The configuration that Axolotl's own validator derives from a YAML, before a model is loaded."""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

import yaml

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace

_WITH_BF16: Final = (8, 0)
_WITH_FP8: Final = (8, 9)
_TORCH: Final = "2.11.0"
"""The run's release of torch, which every release of Axolotl since 0.18 accepts."""


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with which `axolotl.cli.config.load_cfg` continues.

    In: `yaml`; `files` (texts of the files that it names, by path); the declared machine. Out:
    `version`; `refused` (None, or stage, type and message); `values` of all keys that are not null.
    """
    answer: dict[str, Any] = {"version": version("axolotl"), "refused": None, "values": {}}
    try:
        with workplace(question.get("files", {})):
            answer["values"] = plain(_validated(question))
    except Refused as refused:
        answer["refused"] = refused.told()
    return answer


def _validated(question: Mapping[str, Any]) -> dict[str, Any]:
    config: Any = import_module("axolotl.utils.config")
    mapping: Any = import_module("axolotl.utils.dict")
    given = mapping.DictDefault(yaml.safe_load(question["yaml"]))
    with stage("validation"):
        config.prepare_plugins(given)
        found = config.validate_config(
            given, capabilities=_machine(question), env_capabilities={"torch_version": _TORCH}
        )
    return {key: value for key, value in found.to_dict().items() if key not in _ENVIRONMENT}


_ENVIRONMENT: Final = ("capabilities", "env_capabilities")


def _machine(question: Mapping[str, Any]) -> dict[str, Any]:
    """The result of `axolotl.cli.config.gpu_capabilities` on the run's machine."""
    device = declared(question)
    major, minor = device.capability
    return {
        "bf16": device.capability >= _WITH_BF16,
        "fp8": device.capability >= _WITH_FP8,
        "tf32": device.capability >= _WITH_BF16,
        "n_gpu": question.get("world_size", device.count),
        "n_node": 1,
        "compute_capability": f"sm_{major}{minor}",
    }
