"""A device that is newer than the torch which is to run on it."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.hardware.capability import with_capability
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BLACKWELL: Final = (10, 0)
_SINCE: Final = "2.7"
_CUDA: Final = "CUDA 12.8"


def _check(run: Run) -> Iterator[Finding]:
    device = run.environment.weakest
    documents = [each for each in run.documents if not each.is_view]
    if device is None or device.compute_capability is None or not documents:
        return
    if tuple(device.compute_capability) >= _BLACKWELL and run.runs(f"torch<{_SINCE}") is True:
        yield Finding(
            f"{with_capability(device)} is newer than torch {run.release('torch').version}",
            (Label("runs there", documents[0].start(), "", True),),
            (
                "CUDA error: no kernel image is available for execution on the device",
                f"torch {_SINCE} is the first with kernels for it, in its wheels of {_CUDA}",
            ),
            f"use torch {_SINCE} or later, of {_CUDA} or later",
        )


RULE = Rule(
    name="device-newer-than-torch",
    severity="error",
    consequence="init",
    consumers=("torch",),
    sources=(
        (
            "PyTorch 2.7 release, pytorch.org/blog/pytorch-2-7: support for the NVIDIA Blackwell "
            "architecture, and wheels of CUDA 12.8"
        ),
        (
            "pytorch/pytorch#150733, FlyMyAI/flymyai-lora-trainer#47, Hellod035/LeggedLab#26: "
            "older wheels hold sm_50 to sm_90"
        ),
    ),
    check=_check,
)
