"""A GPU that is only declared, for consumers that ask torch about it.

Only the standard library is imported at the top: the scripts that use this run in a consumer's
environment.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

NEWEST: Final = (9, 0)
"""The default compute capability if a question has none; it supports every data type."""

_FIRST_WITH_BF16: Final = 8
# `torch.version.cuda` is None in a build for CPU; the readers compare its major number with 11.
_CUDA: Final = "13.0"


@dataclass(frozen=True, slots=True)
class Device:
    """A CUDA device by its compute capability, and whether it emulates bfloat16 below 8.0.

    `torch.cuda.is_bf16_supported()` counts emulation, and finds it by making a tensor on the
    device. `count` devices of `memory` bytes each are on this node.
    """

    capability: tuple[int, int] = NEWEST
    emulates_bf16: bool = True
    count: int = 1
    memory: int = 0


def declared(question: Mapping[str, Any]) -> Device:
    """The device that a question declares.

    Its keys are `capability` ([major, minor]), `emulates_bf16`, `devices` (how many a node has) and
    `memory` (bytes of each).
    """
    major, minor = question.get("capability") or NEWEST
    return Device(
        (major, minor),
        question.get("emulates_bf16", True),
        question.get("devices", 1),
        question.get("memory", 0),
    )


@contextmanager
def pretended(device: Device) -> Iterator[None]:
    """Make torch report the device. Nothing may be computed on it in the meantime."""
    import torch

    major, minor = device.capability
    properties = SimpleNamespace(
        major=major, minor=minor, name="declared", total_memory=device.memory
    )
    answers = {
        "is_available": lambda: True,
        "device_count": lambda: device.count,
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: (major, minor),
        "get_device_properties": lambda *_: properties,
        "mem_get_info": lambda *_: (device.memory, device.memory),
        "_check_bf16_tensor_supported": lambda *_: (
            major >= _FIRST_WITH_BF16 or device.emulates_bf16
        ),
    }
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(patch.object(torch.cuda, name, answer))
        stack.enter_context(patch.object(torch.version, "cuda", _CUDA))
        yield
