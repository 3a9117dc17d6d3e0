"""A device that the builds of the torch which is to run on it have no kernels for any more."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.hardware.capability import with_capability
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.schemas.torch_builds import BUILDS, INDEX, Build, builds_of


def _check(run: Run) -> Iterator[Finding]:
    device = run.environment.weakest
    documents = [each for each in run.documents if not each.is_view]
    named = run.environment.software.get("torch", "")
    if device is None or device.compute_capability is None or not documents:
        return
    known = _asked(named)
    capability = device.compute_capability
    if not known or known[0].runs_on("nvidia", capability) or _is_newer(capability):
        return
    other = next((each for each in known if each.runs_on("nvidia", capability)), None)
    label = Label("runs there", documents[0].start(), "", True)
    kernels = ", ".join(f"{major}.{minor}" for major, minor in known[0].kernels)
    notes = (
        "CUDA error: no kernel image is available for execution on the device",
        f"torch {known[0].version} has kernels for {kernels}",
    )
    message = f"torch {named} has no kernels for {with_capability(device)}"
    if other is None:
        yield Finding(message, (label,), notes, _older(capability))
    else:
        yield Finding(
            f"{message} in its wheel on PyPI",
            (label,),
            notes,
            f"pip install torch=={other.version} --index-url {INDEX}/{other.name}",
            severity="warning",
        )


def _asked(named: str) -> tuple[Build, ...]:
    """The CUDA builds of a release, the one on PyPI first; the one alone that a version names."""
    local = named.partition("+")[2]
    every = (each for each in builds_of(named) if each.vendor == "nvidia")
    return tuple(each for each in every if local in ("", each.name))


def _is_newer(capability: tuple[int, int]) -> bool:
    """Whether later builds are the way out, which `device-newer-than-torch` tells."""
    return not any(each.runs_on("nvidia", capability) for each in BUILDS[:1])


def _older(capability: tuple[int, int]) -> str:
    found = next(each for each in reversed(BUILDS) if each.runs_on("nvidia", capability))
    return f"use torch {found.version}, from {INDEX}/{found.name}"


RULE = Rule(
    name="device-older-than-torch",
    severity="error",
    consequence="init",
    consumers=("torch",),
    sources=(
        "pytorch/pytorch RELEASE.md, PyTorch CUDA Support Matrix: 12.6 from 5.0, 13.0 from 7.5",
        "pytorch/pytorch#157517, #172352, #190385: Maxwell, Pascal and Volta leave the builds",
    ),
    check=_check,
)
