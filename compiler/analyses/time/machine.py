"""What a step's time depends on of the machine: rates and bandwidths of the chosen devices."""

from collections.abc import Sequence

from msgspec import Struct

from tunec.compiler.analyses.time.pace import Pace
from tunec.schemas.hardware.profile import Device, Network, Node
from tunec.schemas.hardware.silicon import Dtype
from tunec.schemas.terms import FloatDtype


class Machine(Struct, frozen=True):
    """The chosen devices and what joins them; bandwidths in bytes a second, one direction."""

    rate: float
    """Operations a second of one device in the dtype of its matrix products."""
    bandwidth: float
    """Device memory."""
    link: float
    """Out of one device to the others of its node."""
    network: float
    """Out of one node, all adapters together; 0 with a single node."""
    pcie: float
    """Between host and one device."""
    host_bandwidth: float
    """Host memory of one node."""
    nvme_read: float
    """Local storage of one node; 0: none."""
    nvme_write: float
    nodes: int
    per_node: int
    """Devices used on each node."""
    pace: Pace = ()
    """What runs on it came to beside the account, by what they wait for."""


def machine_of(
    devices: Sequence[Device],
    node: Node,
    network: Network | None,
    *,
    nodes: int,
    per_node: int,
    dtype: FloatDtype,
    tf32: bool = False,
    pace: Pace = (),
) -> Machine:
    """Take the slowest of the chosen devices for all of them, since a step waits for each.

    Without a direct link devices reach each other through PCIe and the host.
    """
    pcie = min(device.pcie_bandwidth for device in devices)
    nvme = node.host.nvme
    return Machine(
        rate=min(rate_of(device, dtype, tf32=tf32) for device in devices),
        bandwidth=min(device.bandwidth for device in devices),
        link=node.link.bandwidth if node.link else pcie,
        network=network.bandwidth if network and nodes > 1 else 0,
        pcie=pcie,
        host_bandwidth=node.host.memory_bandwidth,
        nvme_read=nvme.read if nvme else 0,
        nvme_write=nvme.write if nvme else 0,
        nodes=nodes,
        per_node=per_node,
        pace=pace,
    )


def rate_of(device: Device, dtype: FloatDtype, *, tf32: bool = False) -> float:
    """Operations a second of a device for products in a dtype.

    A dtype that the device only emulates is computed in fp32, by conversion; the conversions are
    not counted. 0 where the device has no rate at all.
    """
    wanted: tuple[Dtype, ...] = ("tf32", "fp32") if dtype == "fp32" and tf32 else (dtype, "fp32")
    return next((device.rates[name] for name in wanted if name in device.rates), 0.0)
