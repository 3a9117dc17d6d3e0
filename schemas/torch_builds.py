"""Which builds of torch have kernels for which devices: PyTorch's own wheels, by release.

A build is what follows the `+` of a wheel's version, and the last part of its index:
`download.pytorch.org/whl/cu126` has `2.13.0+cu126`. A kernel runs on devices of its own major
compute capability and of no smaller minor one (CUDA C++ Programming Guide, binary compatibility).
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from tunec.schemas.terms import Vendor

Capability = tuple[int, int]

USUAL: Final = "2.13.0"
"""The release that is taken where none is named: the accounts are held against it."""
INDEX: Final = "https://download.pytorch.org/whl"


class Build(Struct, frozen=True):
    """One build of a minor release of torch for Linux on x86-64."""

    release: str
    """The newest patch of the minor release: `2.13.0`."""
    name: str
    """`cu130`, `rocm7.2`."""
    vendor: Vendor
    kernels: tuple[Capability, ...]
    """Compute capabilities that it has kernels for; empty for other vendors than NVIDIA, whose
    devices of the catalogue all of them have."""
    source: str
    is_usual: bool = False
    """Whether `pip install torch` gives this one: the build on PyPI."""

    @property
    def version(self) -> str:
        """As pip spells it: `2.13.0+cu130`."""
        return f"{self.release}+{self.name}"

    def runs_on(self, vendor: Vendor, capability: Capability | None) -> bool:
        """Whether a device has a kernel in it."""
        if vendor != self.vendor:
            return False
        if capability is None or not self.kernels:
            return True
        major, minor = capability
        return any(each[0] == major and each[1] <= minor for each in self.kernels)


_TO_HOPPER: Final = ((5, 0), (6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0))
_TURING_UP: Final = ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))
_VOLTA_UP: Final = ((7, 0), *_TURING_UP)

_MATRIX: Final = "pytorch/pytorch RELEASE.md, PyTorch CUDA Support Matrix"
_SCRIPT: Final = "pytorch/pytorch .ci/manywheel/build_cuda.sh `TORCH_CUDA_ARCH_LIST`"
_OF_2_6: Final = "pytorch/pytorch pull 143538; torch 2.5.1: sm_50 to sm_90 of its warning"
_OF_2_7: Final = "pytorch/pytorch issue 145570 and pull 146265: no sm_50 to sm_70 with CUDA 12.8"
_OF_2_8: Final = f"{_SCRIPT} (00c7a380b836); pull 158700: `torch.cuda.get_arch_list()`"
_OF_2_9: Final = f"{_MATRIX} (pull 164471)"
_OF_2_10: Final = f"{_MATRIX} (pull 170603: as 2.9)"
_OF_2_11: Final = f"{_MATRIX} (pull 175253; issue 172663: CUDA 13.0 on PyPI)"
_OF_2_12: Final = f"{_MATRIX} (pull 182849)"
_OF_2_13: Final = f"torch 2.13.0 cuda/__init__.py `PYTORCH_RELEASES_CODE_CC`; {_MATRIX}"
_OF_2_14: Final = f"{_MATRIX} (pulls 194367, 197555; issue 190355: CUDA 13.2 on PyPI)"
_OF_2_15: Final = "pytorch/pytorch issue 190385: no CUDA 12.6, no devices before Turing"


def _cuda(
    release: str, name: str, kernels: tuple[Capability, ...], source: str, *, usual: bool = False
) -> Build:
    return Build(release, name, "nvidia", kernels, source, usual)


def _rocm(release: str, name: str, source: str) -> Build:
    return Build(release, name, "amd", (), f"{source}: stable ROCm")


BUILDS: Final = (
    _cuda("2.6.0", "cu124", _TO_HOPPER, _OF_2_6, usual=True),
    _cuda("2.6.0", "cu126", _TO_HOPPER, _OF_2_6),
    _rocm("2.6.0", "rocm6.2.4", _OF_2_6),
    _cuda("2.7.1", "cu126", _TO_HOPPER, _OF_2_7, usual=True),
    _cuda("2.7.1", "cu128", _TURING_UP, _OF_2_7),
    _cuda("2.8.0", "cu128", _VOLTA_UP, _OF_2_8, usual=True),
    _cuda("2.8.0", "cu126", _TO_HOPPER, _OF_2_8),
    _cuda("2.9.1", "cu128", _VOLTA_UP, _OF_2_9, usual=True),
    _cuda("2.9.1", "cu126", _TO_HOPPER, _OF_2_9),
    _cuda("2.10.0", "cu128", _VOLTA_UP, _OF_2_10, usual=True),
    _cuda("2.10.0", "cu126", _TO_HOPPER, _OF_2_10),
    _rocm("2.10.0", "rocm7.1", _OF_2_10),
    _cuda("2.11.0", "cu130", _TURING_UP, _OF_2_11, usual=True),
    _cuda("2.11.0", "cu126", _TO_HOPPER, _OF_2_11),
    _cuda("2.12.1", "cu130", _TURING_UP, _OF_2_12, usual=True),
    _cuda("2.12.1", "cu126", _TO_HOPPER, _OF_2_12),
    _rocm("2.12.1", "rocm7.2", _OF_2_12),
    _cuda("2.13.0", "cu130", _TURING_UP, _OF_2_13, usual=True),
    _cuda("2.13.0", "cu126", _TO_HOPPER, _OF_2_13),
    _rocm("2.13.0", "rocm7.2", _OF_2_13),
    _cuda("2.14.1", "cu132", _TURING_UP, _OF_2_14, usual=True),
    _cuda("2.14.1", "cu126", _TO_HOPPER, _OF_2_14),
    _rocm("2.14.1", "rocm7.14", _OF_2_14),
    _cuda("2.15.0", "cu132", _TURING_UP, _OF_2_15, usual=True),
)
"""Oldest release first; of one release the build on PyPI first."""


def builds_of(release: str) -> tuple[Build, ...]:
    """The builds of a release's minor version; none: nothing is known of it."""
    minor = release.split(".")[:2]
    return tuple(build for build in BUILDS if build.release.split(".")[:2] == minor)


def newest_for(vendor: Vendor, capability: Capability | None) -> Build | None:
    """The newest build that a device has kernels in, up to the usual release first."""
    return next(_newest_first(vendor, capability), None)


def _newest_first(vendor: Vendor, capability: Capability | None) -> Iterator[Build]:
    usual = builds_of(USUAL)
    older = tuple(reversed(BUILDS[: BUILDS.index(usual[0])]))
    yield from (each for each in (*usual, *older) if each.runs_on(vendor, capability))
