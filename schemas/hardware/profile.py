"""Hardware profiles: what a device is, what a node holds, how nodes are joined.

Rates are dense (no structured sparsity), in operations per second; bandwidths are bytes per second
in one direction unless the field says otherwise; memory is what the driver reports as total, not
what the box says.
"""

from typing import Literal

from pydantic import Field

from tunec.schemas.shape import Shape
from tunec.schemas.units import Bytes

Vendor = Literal["nvidia", "amd", "intel", "huawei"]
Dtype = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8"]
Support = Literal["native", "emulated", "absent"]
"""`native`: the arithmetic units do it at the stated rate. `emulated`: libraries run it by
conversion, without the speed and often without the claims being noticed. `absent`: an error."""


class Link(Shape):
    """A direct connection between the devices of one node."""

    kind: Literal["nvlink", "nvswitch", "infinity-fabric", "hccs", "roce", "pcie"]
    bandwidth: float = Field(gt=0)
    """Bytes per second out of one device, one direction, all links of the device together."""


class Device(Shape):
    """One accelerator model."""

    name: str
    title: str
    """The vendor's full product name, as `nvidia-smi` or the data sheet has it."""
    vendor: Vendor
    aliases: tuple[str, ...] = ()
    """Other names people type; unique over the whole catalogue."""
    architecture: str
    """`pascal`, `volta`, `turing`, `ampere`, `ada`, `hopper`, `blackwell`, `cdna2` ..."""
    compute_capability: tuple[int, int] | None = None
    """NVIDIA's major and minor; absent for other vendors."""
    memory: Bytes
    """Total device memory as the driver reports it (what `torch.cuda.mem_get_info` calls total)."""
    bandwidth: float = Field(gt=0)
    """Memory bandwidth in bytes per second."""
    rates: dict[Dtype, float]
    """Peak dense operations per second for each dtype that has units for it."""
    precisions: dict[Dtype, Support]
    """What each precision really is on this device; every Dtype is listed."""
    pcie_bandwidth: float = Field(gt=0)
    """Bytes per second between host and device, one direction, of the slot it normally sits in."""
    link: Link | None = None
    """The fastest link that this device model has; whether a node wires it is the node's fact."""
    sources: dict[str, str]
    """For every number above: where it was read. Keys are field paths (`memory`, `rates.bf16`)."""
    notes: tuple[str, ...] = ()


class Accelerators(Shape):
    """Some devices of one model in a node."""

    device: str
    """Name or alias of a catalogue device."""
    count: int = Field(default=1, ge=1)
    uuids: tuple[str, ...] = ()
    """`GPU-...` names as `nvidia-smi -L` prints them, one a device, if known."""
    memory: Bytes | None = None
    """Memory of each, if it differs from the catalogue (MIG, another board)."""


class Nvme(Shape):
    """Local fast storage of a node, for offload."""

    path: str
    capacity: Bytes
    read: float = Field(gt=0)
    """Sustained bytes per second."""
    write: float = Field(gt=0)
    """Sustained bytes per second."""


class Host(Shape):
    """The computer around the devices."""

    memory: Bytes
    """Host RAM of one node."""
    cores: int = Field(ge=1)
    """Physical CPU cores of one node."""
    memory_bandwidth: float = Field(default=100e9, gt=0)
    """Bytes per second over all sockets; bounds the CPU optimizer."""
    nvme: Nvme | None = None


class Node(Shape):
    """A group of equal nodes."""

    count: int = Field(default=1, ge=1)
    accelerators: tuple[Accelerators, ...] = Field(min_length=1)
    """In PCI bus order, which is what `CUDA_DEVICE_ORDER=PCI_BUS_ID` numbers."""
    link: Link | None = None
    """How the devices of a node reach each other; absent: through PCIe and the host."""
    host: Host


class Network(Shape):
    """What joins the nodes."""

    kind: Literal["infiniband", "roce", "ethernet", "efa", "slingshot"]
    bandwidth: float = Field(gt=0)
    """Bytes per second out of one node, one direction, all adapters together."""


class Cluster(Shape):
    """What a run may use."""

    name: str
    title: str = ""
    nodes: tuple[Node, ...] = Field(min_length=1)
    network: Network | None = None
    """Required as soon as there is more than one node."""
    labels: dict[str, str] = {}
    software: dict[str, str] = {}
    """Versions the cluster runs: `{transformers: "4.40.2", deepspeed: "0.19"}`."""
    price_per_hour: float | None = Field(default=None, ge=0)
    """Cost of the whole cluster in dollars an hour, if the owner wants cost compared."""
    sources: dict[str, str] = {}
    notes: tuple[str, ...] = ()
