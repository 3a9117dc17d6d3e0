"""What a device is built of: numbers of the vendor's product page that its rates must follow from.

They are read apart from the rates and the bandwidth, so that a slip in either shows.
"""

from collections.abc import Iterator, Mapping
from math import isclose
from typing import Final, Literal

from pydantic import Field

from tunec.schemas.shape import Shape
from tunec.schemas.units import Bytes

Dtype = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8"]

_LEAST_OFFERED: Final = 0.9
"""A driver offers a little less memory than there is, for its own tables and for ECC."""
_RATE_TOLERANCE: Final = 0.025
_BANDWIDTH_TOLERANCE: Final = 0.03


class Peak(Shape):
    """The arithmetic of one dtype at the boost clock."""

    dtype: Dtype
    operations: int = Field(ge=1)
    """Dense operations of one unit in one clock."""
    units: int = Field(ge=1)
    """SMs, CUs or matrix engines."""
    clock: float = Field(gt=0)
    """Hertz, boosted."""


class Bus(Shape):
    """The device's own memory bus."""

    bits: int = Field(ge=1)
    """Its width."""
    pin: float = Field(gt=0)
    """Bits per second of one pin."""


class Silicon(Shape):
    """What the vendor says that a device is made of."""

    memory: Bytes
    """What the box says, of which the driver offers a little less."""
    peak: Peak | None = None
    """Absent where the vendor publishes no clocks."""
    bus: Bus | None = None
    """Absent where the vendor publishes no bus."""

    def contradictions(
        self, memory: int, bandwidth: float, rates: Mapping[Dtype, float]
    ) -> Iterator[str]:
        """How a device's bytes, bytes per second and operations per second differ from these."""
        if not _LEAST_OFFERED * self.memory < memory <= self.memory:
            yield f"memory is {memory}, and the box says {self.memory}"
        if self.bus and not _near(
            found := self.bus.bits * self.bus.pin / 8, bandwidth, _BANDWIDTH_TOLERANCE
        ):
            sum_ = f"{self.bus.bits} bits x {self.bus.pin:g} / 8 = {found:.4g}"
            yield f"bandwidth is {bandwidth:.4g}, and its silicon makes {sum_}"
        if self.peak:
            yield from self._slips(self.peak, rates)

    def _slips(self, peak: Peak, rates: Mapping[Dtype, float]) -> Iterator[str]:
        found = peak.operations * peak.units * peak.clock
        sum_ = f"{peak.operations} x {peak.units} x {peak.clock:g} = {found:.4g}"
        if peak.dtype not in rates:
            yield f"rates.{peak.dtype} is not given, and its silicon makes {sum_}"
        elif not _near(found, rates[peak.dtype], _RATE_TOLERANCE):
            given = f"rates.{peak.dtype} is {rates[peak.dtype]:.4g}"
            yield f"{given}, and its silicon makes {sum_}"


def _near(found: float, given: float, tolerance: float) -> bool:
    return isclose(found, given, rel_tol=0, abs_tol=tolerance * found)
