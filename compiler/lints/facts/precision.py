"""Where a run asks for a precision."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.place import Place

if TYPE_CHECKING:
    from tunec.schemas.hardware.profile import Device

LAUNCHED: Final = ("launch:flags.mixed_precision", "accelerate:mixed_precision")
"""Where a launcher is told a precision: what rules read that compare it with another one."""


def turned_on(run: LintContext, keys: Iterable[tuple[str, str]], word: str) -> list[Place]:
    """The places where one of the keys is true, or that word; each place once."""
    found = (place for kind, key in keys for place in run.each(kind, key))
    asked = [place for place in found if place.value is True or place.value == word]
    return list({(place.span, place.path): place for place in asked}.values())


def device_name(device: "Device") -> str:
    """A device with its compute capability: `Tesla V100 (compute capability 7.0)`."""
    if device.compute_capability is None:
        return device.title
    major, minor = device.compute_capability
    return f"{device.title} (compute capability {major}.{minor})"
