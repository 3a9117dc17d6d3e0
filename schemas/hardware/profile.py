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
"""Of one node: more than any machine has, and still counted at once."""
MOST_NODES: Final = 100_000
"""Of one kind."""
MOST_GROUPS: Final = 256
"""Kinds of nodes in one cluster."""

Throughput = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Operations per second."""


class Link(Shape):
    """A direct connection between the devices of one node."""

    kind: Literal["nvlink", "nvswitch", "infinity-fabric", "hccs", "roce", "pcie"]
    """What it is made of."""
    bandwidth: Rate
    """Bytes per second out of one device, one direction, all links of the device together."""


class Device(Shape):
    """One accelerator model, as one process sees it."""

    name: str
    title: str
    """The vendor's full product name, as `nvidia-smi` or the data sheet has it."""
    vendor: Vendor
    aliases: tuple[str, ...] = ()
    """Other names people type; unique over the whole catalogue."""
    architecture: str
    """`pascal`, `volta`, `turing`, `ampere`, `ada`, `hopper`, `blackwell`, `cdna2` ..."""
    form_factor: FormFactor = "pcie"
    compute_capability: tuple[int, int] | None = None
    """NVIDIA's major and minor; absent for other vendors."""
    gfx: str | None = None
    """AMD's name of the processor, `gfx942`; absent for other vendors."""
    shares_host_memory: bool = False
    """Whether its memory is the RAM of its host: what one takes, the other lacks."""
    memory: Bytes
    """Total device memory as the driver reports it (what `torch.cuda.mem_get_info` calls total)."""
    bandwidth: Rate
    """Memory bandwidth in bytes per second."""
    rates: dict[Dtype, Throughput]
    """Peak dense operations per second of the native dtypes; one is left out where the vendor
    publishes none. Matrix products with FP32 accumulation, which is what training uses."""
    precisions: dict[Dtype, Support]
    """What each precision really is on this device; every Dtype is listed."""
    pcie_bandwidth: Rate
    """Bytes per second between host and device, one direction, of the slot it normally sits in."""
    link: Link | None = None
    """The fastest link that this device model has; whether a node wires it is the node's fact."""
    power: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Watts that it takes at most: the power limit it leaves the factory with, as the data sheet
    has it; absent where none was read."""
    machine: str
    """What is assumed around a device of which only the name is given: a row of `machines.yaml`."""
    silicon: Silicon
    """What the vendor says that it is made of: the numbers above must agree."""
    sources: dict[str, str]
    """For every number above: where it was read. Keys are field paths (`memory`, `rates.bf16`); the
    path of a field stands for all within it (`rates`)."""
    notes: tuple[str, ...] = ()

    @property
    def kernels(self) -> tuple[int, int] | str | None:
        """What code is compiled for it: a compute capability or a processor; None: neither."""
        return self.compute_capability or self.gfx

    def supports(self, dtype: Dtype) -> bool:
        """Say whether the arithmetic units themselves do this dtype."""
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
    """Such devices in one node."""
    uuids: tuple[str, ...] = ()
    """`GPU-...` names as `nvidia-smi -L` prints them, one a device, if known."""
    memory: Bytes | None = None
    """Memory of each, if it differs from the catalogue (MIG, another board)."""

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
    """Directory on it."""
    capacity: Bytes
    """How much it holds."""
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
    """How many such nodes."""
    accelerators: tuple[Accelerators, ...] = Field(min_length=1)
    """In PCI bus order, which is what `CUDA_DEVICE_ORDER=PCI_BUS_ID` numbers."""
    link: Link | None = None
    """How the devices of a node reach each other; absent: through PCIe and the host."""
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
    """What joins the nodes."""

    kind: Literal["infiniband", "roce", "ethernet", "efa", "slingshot"]
    """What it is made of."""
    bandwidth: Rate
    """Bytes per second out of one node, one direction, all adapters together."""


class Cluster(Shape):
    """What a run may use."""

    name: str
    """What it is called."""
    title: str = ""
    """What it is, in some words."""
    nodes: tuple[Node, ...] = Field(min_length=1, max_length=MOST_GROUPS)
    network: Network | None = None
    """Required as soon as there is more than one node."""
    labels: dict[str, str] = {}
    """Words by which a fleet selects clusters."""
    software: dict[str, str] = {}
    """Versions the cluster runs: `{transformers: "4.40.2", deepspeed: "0.19"}`."""
    price_per_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Cost of the whole cluster in dollars an hour, if the owner wants cost compared."""
    sources: dict[str, str] = {}
    """Where the numbers were read, by field path: `nodes[0].host.memory`, `network`."""
    notes: tuple[str, ...] = ()
    """What else is to be known of it."""
    _measured: "Measured | None" = PrivateAttr(default=None)

    @property
    def measured(self) -> "Measured | None":
        """What runs on it came to, from the file beside it that `tunec calibrate` writes."""
        return self._measured

    def calibrated(self, measured: "Measured | None") -> Self:
        """A copy that holds what runs on the cluster came to."""
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
        """Say whether device models differ, or sizes of the same one; by name, as written."""
        every = {(group.device, group.memory) for node in self.nodes for group in node.accelerators}
        return len(every) > 1

    @model_validator(mode="after")
    def _joined(self) -> Self:
        if self.node_count > 1 and self.network is None:
            raise ValueError(f"{self.name} has {self.node_count} nodes, but no network joins them")
        return self


def unsourced(profile: Device | Cluster) -> tuple[str, ...]:
    """List the paths of numbers that no source of the profile covers.

    How many nodes a cluster has is a choice, not a fact that was read, and needs no source.
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
