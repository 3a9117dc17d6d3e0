"""Hardware profiles: what a device is, what a node holds, how nodes are joined.

Rates are dense (no structured sparsity), in operations per second; bandwidths are bytes per second
in one direction unless the field says otherwise; memory is what the driver reports as total, not
what the box says.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self, get_args

from pydantic import Field, PrivateAttr, model_validator

from tunec.schemas.hardware.silicon import Dtype, Silicon
from tunec.schemas.shape import Shape
from tunec.schemas.terms import Vendor
from tunec.schemas.units import Bytes, Rate

if TYPE_CHECKING:
    from tunec.schemas.hardware.measurements import Measured

Support = Literal["native", "emulated", "absent"]
"""`native`: the arithmetic units do it at the stated rate. `emulated`: libraries run it by
conversion, without the speed and often without the claims being noticed. `absent`: an error."""

FormFactor = Literal["pcie", "sxm", "oam", "superchip"]
"""`pcie`: a card in a slot. `sxm` and `oam`: a module on a baseboard that wires the modules to each
other. `superchip`: on one board with its CPU."""

MOST_DEVICES: Final = 1024
"""Devices of one node: more than any machine has, and still quick to count."""
MOST_NODES: Final = 100_000
"""Nodes of one kind."""
MOST_GROUPS: Final = 256
"""Kinds of nodes in one cluster."""

Throughput = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Operations per second."""


class Link(Shape):
    """A direct connection between the devices of one node."""

    kind: Literal["nvlink", "nvswitch", "infinity-fabric", "hccs", "roce", "pcie"]
    """The technology of the link."""
    bandwidth: Rate
    """Bytes per second out of one device, one direction, all links of the device together."""


class Device(Shape):
    """One accelerator model, as one process sees it."""

    name: str
    title: str
    """The vendor's full product name, as in `nvidia-smi` or the data sheet."""
    vendor: Vendor
    aliases: tuple[str, ...] = ()
    """Other names people type; unique over the whole catalogue."""
    architecture: str
    """`pascal`, `volta`, `turing`, `ampere`, `ada`, `hopper`, `blackwell`, `cdna2` ..."""
    form_factor: FormFactor = "pcie"
    compute_capability: tuple[int, int] | None = None
    """NVIDIA's major and minor; absent for other vendors."""
    gfx: str | None = None
    """AMD's name of the processor, such as `gfx942`; absent for other vendors."""
    shares_host_memory: bool = False
    """Whether its memory is the host's RAM, so that both share one amount."""
    memory: Bytes
    """Total device memory as the driver reports it (what `torch.cuda.mem_get_info` calls total)."""
    bandwidth: Rate
    """Memory bandwidth in bytes per second."""
    rates: dict[Dtype, Throughput]
    """Peak dense operations per second of the native dtypes; a dtype is missing if the vendor
    publishes no number. Matrix products with FP32 accumulation, which is what training uses."""
    precisions: dict[Dtype, Support]
    """How the device supports each precision; every Dtype is listed."""
    pcie_bandwidth: Rate
    """Bytes per second between host and device, one direction, of its usual slot."""
    link: Link | None = None
    """The fastest link that this device model has; whether a node wires it is a fact of the
    node."""
    power: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The default power limit in watts, from the data sheet; absent if none was found."""
    machine: str
    """The row of `machines.yaml` with the assumed host, if only the device's name is given."""
    silicon: Silicon
    """The vendor's data on the chip, which must agree with the numbers above."""
    sources: dict[str, str]
    """The source of every number above. Keys are field paths (`memory`, `rates.bf16`); the path of
    a field covers everything within it (`rates`)."""
    notes: tuple[str, ...] = ()

    @property
    def kernels(self) -> tuple[int, int] | str | None:
        """What kernels are compiled for: a compute capability or a processor; None: neither."""
        return self.compute_capability or self.gfx

    def supports(self, dtype: Dtype) -> bool:
        """Whether the arithmetic units support this dtype natively."""
        return self.precisions[dtype] == "native"

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if missing := set(get_args(Dtype)) - set(self.precisions):
            raise ValueError(f"precisions of {self.name} lack {', '.join(sorted(missing))}")
        for dtype in self.rates:
            if not self.supports(dtype):
                raise ValueError(
                    f"rates.{dtype} of {self.name} is given, "
                    f"but precisions.{dtype} is {self.precisions[dtype]}"
                )
        if (self.vendor == "nvidia") != (self.compute_capability is not None):
            raise ValueError(
                f"compute_capability of {self.name} is given by NVIDIA's devices and by no others"
            )
        if (self.vendor == "amd") != (self.gfx is not None):
            raise ValueError(f"gfx of {self.name} is given by AMD's devices and by no others")
        return self

    @model_validator(mode="after")
    def _of_its_silicon(self) -> Self:
        for each in self.silicon.contradictions(self.memory, self.bandwidth, self.rates):
            raise ValueError(f"{self.name}: {each}")
        return self

    @model_validator(mode="after")
    def _sourced(self) -> Self:
        if missing := unsourced(self):
            raise ValueError(f"no source for {', '.join(missing)} of {self.name}")
        for path in self.sources:
            if _root(path) not in type(self).model_fields:
                raise ValueError(f"sources of {self.name} name {path!r}, which is no field")
        return self


class Accelerators(Shape):
    """Some devices of one model in a node."""

    device: str
    """Name or alias of a catalogue device."""
    count: int = Field(default=1, ge=1, le=MOST_DEVICES)
    """The number of such devices in one node."""
    uuids: tuple[str, ...] = ()
    """`GPU-...` names as `nvidia-smi -L` prints them, one per device, if known."""
    memory: Bytes | None = None
    """Memory of each device, if it differs from the catalogue (MIG, another board)."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.uuids and len(self.uuids) != self.count:
            raise ValueError(
                f"{len(self.uuids)} uuids are given for {self.count} devices {self.device!r}"
            )
        if len(set(self.uuids)) != len(self.uuids):
            raise ValueError(f"two devices {self.device!r} have the same uuid")
        return self


class Nvme(Shape):
    """Local fast storage of a node, for offload."""

    path: str
    """A directory on it."""
    capacity: Bytes
    """Its capacity."""
    read: Rate
    """Sustained bytes per second."""
    write: Rate
    """Sustained bytes per second."""


class Host(Shape):
    """The computer around the devices."""

    memory: Bytes
    """Host RAM of one node."""
    cores: int = Field(ge=1)
    """Physical CPU cores of one node."""
    memory_bandwidth: Rate = 100e9
    """Bytes per second over all sockets; bounds the CPU optimizer."""
    nvme: Nvme | None = None


class Node(Shape):
    """A group of equal nodes."""

    count: int = Field(default=1, ge=1, le=MOST_NODES)
    """The number of such nodes."""
    accelerators: tuple[Accelerators, ...] = Field(min_length=1)
    """In PCI bus order, which is what `CUDA_DEVICE_ORDER=PCI_BUS_ID` numbers."""
    link: Link | None = None
    """The link between the devices of a node; absent: they communicate through PCIe and the
    host."""
    host: Host

    @property
    def device_count(self) -> int:
        """How many devices one such node holds."""
        return sum(group.count for group in self.accelerators)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.device_count > MOST_DEVICES:
            raise ValueError(f"a node has {self.device_count} devices, and at most {MOST_DEVICES}")
        return self


class Network(Shape):
    """The network between nodes."""

    kind: Literal["infiniband", "roce", "ethernet", "efa", "slingshot"]
    """The technology of the network."""
    bandwidth: Rate
    """Bytes per second out of one node, one direction, all adapters together."""


class Cluster(Shape):
    """The hardware that a run may use."""

    name: str
    """The cluster's name."""
    title: str = ""
    """A short description."""
    nodes: tuple[Node, ...] = Field(min_length=1, max_length=MOST_GROUPS)
    network: Network | None = None
    """Required if there is more than one node."""
    labels: dict[str, str] = {}
    """Labels by which a fleet selects clusters."""
    software: dict[str, str] = {}
    """Versions the cluster runs: `{transformers: "4.40.2", deepspeed: "0.19"}`."""
    price_per_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Cost of the whole cluster in dollars per hour, if it should be compared."""
    sources: dict[str, str] = {}
    """The sources of the numbers, by field path: `nodes[0].host.memory`, `network`."""
    notes: tuple[str, ...] = ()
    """Further facts about the cluster."""
    _measured: "Measured | None" = PrivateAttr(default=None)

    @property
    def measured(self) -> "Measured | None":
        """The measurements of its runs, from the file beside it that `tunec calibrate` writes."""
        return self._measured

    def calibrated(self, measured: "Measured | None") -> Self:
        """A copy that holds the measurements of runs on the cluster."""
        copy = self.model_copy()
        copy._measured = measured  # noqa: SLF001  its own copy
        return copy

    @property
    def node_count(self) -> int:
        """How many nodes there are, over all groups."""
        return sum(node.count for node in self.nodes)

    @property
    def device_count(self) -> int:
        """How many devices there are, over all nodes."""
        return sum(node.count * node.device_count for node in self.nodes)

    @property
    def is_mixed(self) -> bool:
        """Whether device models or memory sizes differ; models are compared by name, as written."""
        every = {(group.device, group.memory) for node in self.nodes for group in node.accelerators}
        return len(every) > 1

    @model_validator(mode="after")
    def _joined(self) -> Self:
        if self.node_count > 1 and self.network is None:
            raise ValueError(f"{self.name} has {self.node_count} nodes, but no network joins them")
        return self


def unsourced(profile: Device | Cluster) -> tuple[str, ...]:
    """List the paths of numbers for which the profile has no source.

    The number of nodes is a choice, not a published fact, and needs no source.
    """
    return tuple(
        path
        for path in _numbers(profile)
        if not any(_covers(key, path) for key in profile.sources) and not _is_choice(path)
    )


def _is_choice(path: str) -> bool:
    return path.startswith("nodes[") and path.endswith("].count") and path.count(".") == 1


def _covers(key: str, path: str) -> bool:
    return path == key or path.startswith((f"{key}.", f"{key}["))


def _root(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def _numbers(value: object, path: str = "") -> Iterator[str]:
    if isinstance(value, int | float) and value is not False:
        yield path
    elif isinstance(value, Shape):
        for field in type(value).model_fields:
            yield from _numbers(getattr(value, field), f"{path}.{field}" if path else field)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, f"{path}.{key}")
    elif isinstance(value, tuple):
        for at, item in enumerate(value):
            yield from _numbers(item, f"{path}[{at}]")


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
