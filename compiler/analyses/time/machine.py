"""The machine's properties on which a step's time depends: rates and bandwidths of its devices."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.time.pace import Pace
from tunec.compiler.analyses.time.tiles import READ
from tunec.schemas.hardware.profile import Device, Network, Node
from tunec.schemas.hardware.silicon import Dtype
from tunec.schemas.terms import FloatDtype


class Machine(Struct, frozen=True):
    """The chosen devices and their links; bandwidths are in bytes per second, in one direction."""

    rate: float
    """Operations a second of one device in the dtype of its matrix products."""
    bandwidth: float
    """Device memory, as streaming kernels reach it."""
    link: float
    """From one device to the others of its node."""
    network: float
    """Out of one node, over all adapters together; 0 with a single node."""
    pcie: float
    """Between host and one device."""
    host_bandwidth: float
    """Host memory of one node."""
    nvme_read: float
    """Local storage of one node; 0 if there is none."""
    nvme_write: float
    nodes: int
    per_node: int
    """The number of devices used on each node."""
    pace: Pace = ()
    """Factors on the account from measured runs, by resource."""
    reached: float = 0.85
    """Share of the rate that large products sustain."""
    attention: float = 0.5
    """Share of the rate that fused attention sustains."""
    masked: float = 0.2
    """Share of the rate that torch's fused attention sustains where it reads a mask."""
    single: float = 0
    """Operations a second of products in fp32 that no tensor core takes; 0: as in `rate`."""
    patience: float = 1
    """How many times longer its host takes for a kernel than a current host."""
    loaders: int = 8
    """Processes that load data for each device, if the run does not set their number."""
    units: int = 0
    """Units of one device, each of which computes a tile of a product; 0 if unknown."""
    read: float = READ
    """Multiplications that a unit could do while it reads one element of a tile's edge."""
    threads: int = 0
    """Of each rank's process, for an optimizer on the host; 0: as many as its memory keeps busy."""


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

    Without a direct link devices reach each other through the host, at a share of their slots.
    """
    pcie = min(device.pcie_bandwidth for device in devices)
    nvme = node.host.nvme
    return Machine(
        rate=min(rate_of(device, dtype, tf32=tf32) for device in devices),
        bandwidth=min(map(_streamed, devices)),
        link=node.link.bandwidth if node.link else _THROUGH_HOST * pcie,
        network=network.bandwidth if network and nodes > 1 else 0,
        pcie=pcie,
        host_bandwidth=node.host.memory_bandwidth,
        nvme_read=nvme.read if nvme else 0,
        nvme_write=nvme.write if nvme else 0,
        nodes=nodes,
        per_node=per_node,
        pace=pace,
        loaders=max(1, min(MOST_LOADERS, node.host.cores // per_node - 1)),
        units=min(map(_units, devices)),
        read=max(_read(device, dtype, tf32=tf32) for device in devices),
        threads=max(1, node.host.cores // per_node),
        **_slowest([_keeps_up(device, dtype) for device in devices]),
    )


def _units(device: Device) -> int:
    """The number of SMs or CUs; 0 for other vendors, whose libraries divide products differently.

    Square products of 2,048 to 8,192 on an MI300X reach 0.59 to 1 of the fastest (hipBLASLt:
    yosoyjay/AI-benchmarking-guide a8263ef, Azure_Results/ND_MI300X_v5_results.md); by tiles over
    its 304 CUs it would be 0.57 to 0.93.
    """
    return (device.silicon.units or 0) if device.vendor in ("nvidia", "amd") else 0


def _read(device: Device, dtype: FloatDtype, *, tf32: bool) -> float:
    """Multiplications in a dtype that a unit could do while it reads an element of a tile's edge.

    A unit of an A100 multiplies 1,024 times in a clock in 16 bits. Others read about as many bytes
    in a clock: of their second level of cache a V100 has 26 for each unit, an A100 47.
    """
    silicon = device.silicon
    if not silicon.units or not silicon.clock:
        return READ
    done = rate_of(device, dtype, tf32=tf32) / (2 * silicon.units * silicon.clock)
    return READ * done / _MULTIPLIES * BYTES[dtype] / 2


_MULTIPLIES: Final = 1024
"""Multiplications of one unit of an A100 in a clock."""


def _streamed(device: Device) -> float:
    """Bytes per second of device memory that kernels reach which only read and write."""
    return device.bandwidth * _STREAMED.get(device.name, _USUALLY_STREAMED)


_STREAMED: Final[Mapping[str, float]] = {
    "a100-sxm4-80g": 1.70 / 2.039,
    "h100-sxm": 2.97 / 3.35,
    "h200": 4.15 / 4.8,
    "a100-sxm4-40g": 1.363 / 1.555,
    "a40": 0.655 / 0.696,
    "l40": 0.788 / 0.864,
    "mi210": 1.263 / 1.6,
    "mi300x": 4.10 / 5.3,
    "v100-sxm2-32g": 0.814 / 0.900,
    "v100-sxm2-16g": 0.814 / 0.900,
    "t4": 0.240 / 0.320,
    "rtx-4090": 0.921 / 1.008,
}
"""Terabytes a second of STREAM's triad over those of the data sheet. The first three: BabelStream,
Azure/AI-benchmarking-guide 8fd0c6e, Azure_Results; of an MI300X: its copy yosoyjay a8263ef. Up to
the V100: te42kyfo/gpu-benches 1c36d50, gpu-stream, triad at full occupancy. Copies of a T4:
router-gao/cuda-demo, cuda-samples/02-cuda-bandwidth.md; of an RTX 4090: xytpai/nvbench 017724f,
README.md."""
_USUALLY_STREAMED: Final = 0.88
"""For devices without a known figure: the median of the table."""


_THROUGH_HOST: Final = 0.45
"""Share of a slot that devices without a link of their own have for each other, since all goes
through the host's memory. With `communication.REACHED` it is a third: of 31.5 GB/s two RTX 4090
send 8.4 and 15 each, both at once, and two A40 10 (p2pBandwidthLatencyTest, bidirectional, without
peer access: gist muellerzr/fbfabd0f, NVIDIA/nccl issue 814, NVIDIA/nccl-tests issue 74). Devices
that reach each other's memory over PCIe are faster: their node states that as its link."""


MOST_LOADERS: Final = 8
"""The most loading processes of a rank; more rarely help, and each takes host memory."""


def _slowest(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """The slowest device's values, by field of `Machine`."""
    if len(found) == 1:
        return found[0]
    least = {name: min(each[name] for each in found) for name in found[0]}
    return least | {"patience": max(each["patience"] for each in found)}


def rate_of(device: Device, dtype: FloatDtype, *, tf32: bool = False) -> float:
    """Operations per second of a device for products in a dtype.

    A dtype that the device only emulates is computed in fp32 after conversion, and the conversions
    are not counted. 0 if the device has no such rate.
    """
    wanted: tuple[Dtype, ...] = ("tf32", "fp32") if dtype == "fp32" and tf32 else (dtype, "fp32")
    return next((device.rates[name] for name in wanted if name in device.rates), 0.0)


_REACHED: Final[Mapping[str, float]] = {
    "gaudi2": 0.969,
    "a100-sxm4-40g": 0.869,
    "a100-sxm4-80g": 0.869,
    "a800-sxm4-80g": 0.869,
    "gh200-96g": 0.838,
    "a100-pcie-40g": 0.811,
    "a100-pcie-80g": 0.811,
    "h100-sxm": 0.803,
    "h800-sxm": 0.803,
    "h200": 0.803,
    "b300": 0.786,
    "b200": 0.776,
    "gaudi3": 0.741,
    "gb200": 0.729,
    "mi355x": 0.680,
    "mi325x": 0.604,
    "mi300x": 0.514,
    "v100-sxm2-16g": 0.668,
    "v100-sxm2-32g": 0.668,
    "t4": 0.395,
}
"""Share of the data sheet's 16-bit rate that the fastest large product keeps up, power limit and
all: stas00/ml-engineering 744d01e, compute/accelerator, Maximum Achievable Matmul FLOPS. That of a
V100 and of a T4, which 70 W hold down, are fitted (`tests/analyses/time/fit.py`)."""
_USUAL: Final = 0.85
"""For devices that were not measured: about the median of the table."""
_GEFORCE: Final = 1.1
"""Of GeForce cards, which run at clocks above the one that the data sheet counts with, in every
dtype. A judgement, made when runs of `fsdp_qlora` on an RTX 3090 and 4090 had been seen."""
_ADA_WATT: Final = 0.706e12
"""Operations a second that a chip of the Ada generation keeps up for each watt that it may take:
what `l40_40gb.csv` shows of 300 W. At 300 W an RTX 6000 Ada has the same."""


def _keeps_up(device: Device, dtype: FloatDtype) -> dict[str, float]:
    share = reached(device, dtype)
    attention = _attention(device, share)
    return {
        "reached": share,
        "attention": attention,
        "masked": attention * _behind_mask(device.compute_capability),
        "single": device.rates.get("fp32", 0.0),
        "patience": 2.0 if device.pcie_bandwidth < _OLD_PCIE else 1.0,
    }


def reached(device: Device, dtype: FloatDtype) -> float:
    """Share of a device's rate in a dtype that large products sustain."""
    rate = rate_of(device, dtype)
    if device.name.startswith("rtx-") and "ada" not in device.name and device.name[4].isdigit():
        return _GEFORCE
    if dtype == "fp32":
        return _USUAL
    if device.architecture == "ada" and device.power:
        return _ADA_WATT * device.power / rate
    return _REACHED.get(device.name, _USUAL)


_ATTENTION: Final[Mapping[tuple[int, int], float]] = {
    (8, 0): 0.64,
    (9, 0): 0.35,
    (10, 0): 0.35 * 989 / 2250,
    (10, 3): 0.35 * 989 / 2250,
}
"""Share of the rate that FlashAttention-2 keeps up, forward and backward: A100, fitted to texts of
up to 262,144 tokens (`tests/analyses/time/fit.py`; arXiv 2307.08691, figures 5 and 6, has 50 to
73 % forward and up to 63 % backward); H100, arXiv 2407.08608, abstract (35 %, since it does not use
what is new there, so that a B200 is as fast)."""
_CDNA_3: Final = 328.6 / 1307.4
"""FlashAttention-2, forward, 8,192 tokens, on an MI300X (yosoyjay/AI-benchmarking-guide a8263ef,
Azure_Results/ND_MI300X_v5_results.md)."""
_FUSED: Final = (8, 0)
"""The oldest chips for which FlashAttention-2 is written (flash-attn 2.8, README)."""
_UNFUSED: Final = 0.65
"""Of what large products keep up, on others: less than an A100 has. A judgement."""


def _attention(device: Device, share: float) -> float:
    """Share of the rate that fused attention keeps up, of which products keep up `share`.

    Between its products it takes exponentials, of which each unit does 16 in a clock, whatever it
    multiplies (CUDA C++ Programming Guide, "Compute Capability 8.x, Architecture": 16 special
    function units, as 7.x and 9.0 have; arXiv 2407.08608, 3.1, footnote 5): chips that multiply
    less in a clock wait less for them, as an A100 shows by how much it waits.
    """
    capability, done = device.compute_capability or (0, 0), device.silicon.operations
    if capability in _ATTENTION:
        return _ATTENTION[capability]
    if device.architecture == "cdna3":
        return _CDNA_3
    if capability < _FUSED or done is None:
        return _UNFUSED * share
    waits = _REACHED["a100-sxm4-80g"] / _ATTENTION[_FUSED] - 1
    return share / (1 + waits * done / _OPERATIONS)


def _behind_mask(capability: tuple[int, int] | None) -> float:
    """Speed of the kernel that reads a mask, as a share of the one that does not.

    It was written for an A100, and loses to FlashAttention-2 as that loses to later ones. Older
    chips, on which FlashAttention does not run, have it in both cases. Other vendors' kernels take
    masks.
    """
    if capability is None or capability < _FUSED:
        return 1
    return _MASKED_HOPPER if (9, 0) <= capability < (12, 0) else _MASKED


_MASKED_HOPPER: Final = 93.6 / 989 / 0.35
"""H100, 16,384 tokens, 16 bits, `efficient` behind a mask of windows, forward and backward
(pytorch/pytorch pull request 137036, comment of 2024-10-29: 47.7 and 116.8 ms; without a mask 31.6
and 105.1)."""
_MASKED: Final = 91.4 / 312 / 0.64 * (31.6 + 105.1) / (47.7 + 116.8)
"""A100, 8,192 tokens and heads of 128, 16 bits, without a mask (facebookresearch/xformers issue
712: 5.43 ms forward; NVIDIA/cutlass pull request 992: 15.58 ms backward), times what a mask costs
an H100."""
_OPERATIONS: Final = 2048
"""In a clock, of one unit of an A100."""
_OLD_PCIE: Final = 2e10
"""Bytes a second: hosts with PCIe 3 are from before 2020, and take twice as long for a kernel. The
twice is a judgement."""
