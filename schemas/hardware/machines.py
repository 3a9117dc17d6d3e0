"""The hosts that are assumed around devices of which only the name is given: `machines.yaml`."""

from pydantic import Field

from tunec.schemas.hardware.profile import Network
from tunec.schemas.shape import Shape
from tunec.schemas.units import Bytes, Rate


class Machine(Shape):
    """The assumed host of a device of which only the name is given."""

    memory: Bytes
    """Host RAM for each device."""
    cores: int = Field(ge=1)
    """Physical CPU cores for each device."""
    memory_bandwidth: Rate
    """Bytes per second of host memory for each device."""
    network: Network
    """The network that connects such nodes, for a whole node."""
    source: str
    """The machine from which the numbers are taken."""


class Machines(Shape):
    """The file of assumed machines, by the name that a device gives."""

    machines: dict[str, Machine]
