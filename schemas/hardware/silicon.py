"""How a device is built: numbers of the vendor's product page, from which its rates must follow.

They are entered separately from the rates and the bandwidth, so that a mistake in either shows.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from pydantic import Field

from tunec.schemas.shape import Shape
from tunec.schemas.units import Bytes

Dtype = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8"]

_LEAST_OFFERED: Final = 0.9
"""A driver reports a little less memory than there is, for its own tables and for ECC."""
_RATE_TOLERANCE: Final = 0.025
_BANDWIDTH_TOLERANCE: Final = 0.03


class Silicon(Shape):
    """The vendor's data on how a device is built; numbers that are not published are absent."""

    memory: Bytes
    """The advertised memory, of which the driver reports a little less."""
    dtype: Dtype | None = None
    """The dtype to which `operations` refers."""
    operations: int | None = Field(default=None, ge=1)
    """Dense operations of one unit in one clock."""
    units: int | None = Field(default=None, ge=1)
    """SMs, CUs or matrix engines."""
    clock: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Boost clock in hertz."""
    bus_bits: int | None = Field(default=None, ge=1)
    """Width of the memory bus."""
    pin_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Bits per second of one pin of the memory bus."""

    def contradictions(
        self, memory: int, bandwidth: float, rates: Mapping[Dtype, float]
    ) -> Iterator[str]:
        """How a device's bytes, bytes per second and operations per second differ from these."""
        if not _LEAST_OFFERED * self.memory < memory <= self.memory:
            yield f"memory is {memory}, and the box says {self.memory}"
        if self.bus_bits and self.pin_rate:
            made = self.bus_bits * self.pin_rate / 8
            if abs(made - bandwidth) > _BANDWIDTH_TOLERANCE * made:
                summed = f"{self.bus_bits} bits x {self.pin_rate:g} / 8 = {made:.4g}"
                yield f"bandwidth is {bandwidth:.4g}, and its silicon makes {summed}"
        if self.dtype and self.operations and self.units and self.clock:
            made = self.operations * self.units * self.clock
            given = rates.get(self.dtype, 0.0)
            if abs(made - given) > _RATE_TOLERANCE * made:
                summed = f"{self.operations} x {self.units} x {self.clock:g} = {made:.4g}"
                yield f"rates.{self.dtype} is {given:.4g}, and its silicon makes {summed}"

    @property
    def is_whole(self) -> bool:
        """Whether everything is published, so that rates and bandwidth are checked."""
        return None not in self.model_dump().values()
