"""Which builds of torch have kernels for which devices: PyTorch's own wheels, by release.

A build is what follows the `+` of a wheel's version, and the last part of its index:
`download.pytorch.org/whl/cu126` has `2.13.0+cu126`. A kernel runs on devices of its own major
compute capability and of no smaller minor one (CUDA C++ Programming Guide, binary compatibility):
those of 10.0 on a B300 (10.3), those of 12.0 on a GB10 (12.1). AMD's run on their own processor.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from tunec.schemas.terms import Vendor

Capability = tuple[int, int]
Kernels = Capability | str
"""What kernels are compiled for: a compute capability, or an AMD processor (`gfx942`)."""

USUAL: Final = "2.13.0"
"""The default release: the accounts are checked against it."""
INDEX: Final = "https://download.pytorch.org/whl"
BUILT_ON_TORCH: Final = frozenset({"flash-attn"})
"""Packages that are compiled against the installed torch, so pip cannot isolate their build:
flash-attn 2.8.3 setup.py imports torch, packaging and wheel, and asks for ninja and psutil."""
BUILD_TOOLS: Final = "ninja packaging psutil setuptools wheel"


class Build(Struct, frozen=True):
    """One build of a minor release of torch for Linux on x86-64.

    On the Arm of a Grace CPU the builds for Hopper and Blackwell have their kernels too (torch
    2.13.0 `PYTORCH_RELEASES_CODE_CC`, `aarch64`), and none for older devices.
    """

    release: str
    """The newest patch of the minor release: `2.13.0`."""
    name: str
    """`cu130`, `rocm7.2`."""
    vendor: Vendor
    kernels: tuple[Kernels, ...]
    """The devices for which it has kernels; of AMD's processors, those of known devices."""
    source: str
    is_usual: bool = False
    """Whether `pip install torch` installs it: the build on PyPI."""

    @property
    def version(self) -> str:
        """The version as pip spells it: `2.13.0+cu130`."""
        return f"{self.release}+{self.name}"

    def runs_on(self, vendor: Vendor, kernels: Kernels | None) -> bool:
        """Whether it has kernels for a device; `kernels`: what the device runs, if known."""
        if vendor != self.vendor:
            return False
        return kernels is None or any(_runs(each, kernels) for each in self.kernels)


def spelled(kernels: Kernels) -> str:
    """A kernel architecture as people write it: `9.0`, `gfx942`."""
    return kernels if isinstance(kernels, str) else "{}.{}".format(*kernels)


def _runs(compiled: Kernels, device: Kernels) -> bool:
    if isinstance(compiled, str) or isinstance(device, str):
        return compiled == device
    return compiled[0] == device[0] and compiled[1] <= device[1]


_TO_HOPPER: Final = ((5, 0), (6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0))
_TURING_UP: Final = ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))
_VOLTA_UP: Final = ((7, 0), *_TURING_UP)

_ROCM_6: Final = ("gfx90a", "gfx942", "gfx1100")
_ROCM_7: Final = (*_ROCM_6, "gfx950", "gfx1151", "gfx1201")

_MATRIX: Final = "pytorch/pytorch RELEASE.md, PyTorch CUDA Support Matrix"
_SCRIPT: Final = "pytorch/pytorch .ci/manywheel/build_cuda.sh `TORCH_CUDA_ARCH_LIST`"
_ROCM: Final = (
    "pytorch/pytorch .ci/docker/manywheel/build.sh `PYTORCH_ROCM_ARCH`, with gfx950 and gfx1151 "
    "since ROCm 7.0 (pull 163860); rocBLAS has gfx1201 since ROCm 6.4"
)
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
    kernels = _ROCM_7 if name >= "rocm7" else _ROCM_6
    return Build(release, name, "amd", kernels, f"{source}: stable ROCm; {_ROCM}")


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
    """The builds of a release's minor version; empty if it is unknown."""
    minor = release.split(".")[:2]
    return tuple(build for build in BUILDS if build.release.split(".")[:2] == minor)


def wheel(named: str) -> tuple[str, str | None]:
    """The requirement for a release and build, such as `2.13.0+cu126`, and the index that has it.

    None: PyPI has it, without a build in its version.
    """
    release, _, build = named.partition("+")
    if any(each.is_usual and each.name == build for each in builds_of(release)):
        return f"torch=={release}", None
    return f"torch=={named}", f"{INDEX}/{build}"


def newest_for(vendor: Vendor, kernels: Kernels | None, below: str = "") -> Build | None:
    """The newest build with kernels for a device; builds up to the usual release come first.

    With `below`, builds of releases before that one come before all others.
    """
    every = tuple(_newest_first(vendor, kernels))
    older = (each for each in every if below and _parts(each.release) < _parts(below))
    return next(older, next(iter(every), None))


def _parts(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def _newest_first(vendor: Vendor, kernels: Kernels | None) -> Iterator[Build]:
    until = BUILDS.index(builds_of(USUAL)[-1]) + 1
    releases = dict.fromkeys(each.release for each in reversed(BUILDS[:until]))
    every = (each for release in releases for each in builds_of(release))
    yield from (each for each in every if each.runs_on(vendor, kernels))
