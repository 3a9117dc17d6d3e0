"""The container image whose torch has the devices' kernels."""

import re
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import on_deepspeed

_CUDA: Final = re.compile(r"cu(\d{2})(\d)")
_PYTORCH: Final = re.compile(
    r"pytorch/pytorch:([\d.]+)-cuda(\d{2})\.(\d)-cudnn\d+-(?:runtime|devel)"
)
_GAUDI: Final = (
    "vault.habana.ai/gaudi-docker/1.22.0/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:latest"
)
"""Intel Gaudi documentation 1.22, Docker Installation."""


def usual_image(plan: Plan) -> str | None:
    """PyTorch's own image for the plan's torch, or the maker's; None: none is known.

    pytorch/pytorch .github/scripts/generate_docker_release_matrix.py: one for each CUDA release of
    the wheels, as `runtime` and as `devel`. DeepSpeed compiles its kernels when it first needs them
    (0.14.5 to 0.19.8 op_builder/builder.py `installed_cuda_version`: CUDA_HOME), for which `devel`
    has the compiler.
    """
    if plan.devices.vendor == "intel":
        return _GAUDI
    release, _, build = (plan.job.torch or "").partition("+")
    cuda = _CUDA.fullmatch(build)
    if cuda is None:
        return None
    kind = "devel" if on_deepspeed(plan) else "runtime"
    return f"pytorch/pytorch:{release}-cuda{cuda[1]}.{cuda[2]}-cudnn9-{kind}"


def torch_of(image: str) -> str | None:
    """The torch that an image of PyTorch's own holds; None: another image."""
    found = _PYTORCH.fullmatch(image)
    return f"{found[1]}+cu{found[2]}{found[3]}" if found else None


def image_of(plan: Plan) -> str | None:
    """The spec's own image, or else the usual one."""
    return plan.job.image or usual_image(plan)


def read_image(image: str) -> Mapping[str, Any]:
    """The image, and the torch that it holds where it is PyTorch's own."""
    torch = torch_of(image)
    return {"job.image": image or None, **({"job.torch": torch} if torch else {})}
