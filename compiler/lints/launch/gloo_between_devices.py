"""Processes with devices of their own talk by gloo, over host memory."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    devices, world = run.environment.devices, run.value("parallel.world")
    if run.said("trainer", "use_cpu", "no_cuda") is not None or world == 1:
        return
    nvidia = [each.title for each in devices.values() if each.compute_capability]
    for place in run.each("trainer", "ddp_backend"):
        if place.value == "gloo" and (nvidia or not devices):
            whose = nvidia[0] if nvidia else "the devices"
            yield Finding(
                f"gradients of {whose} go through host memory by gloo",
                (place.label("for processors"),),
                (
                    "gloo copies each bucket to the host, sums it there, and copies it back",
                    "it is the backend for processors; NCCL reduces on the devices",
                ),
                "write nccl, or remove it: nccl is what devices get",
                Fix((place.replaced("nccl"),), "safe"),
                certain=bool(nvidia),
            )


RULE = Rule(
    name="gloo-between-devices",
    severity="warning",
    consequence="slow",
    consumers=("transformers",),
    sources=(
        (
            "torch 2.13 documentation, torch.distributed, Which backend to use: NCCL for "
            "distributed training with CUDA GPUs, Gloo with CPUs"
        ),
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `_setup_devices`: ddp_backend goes to "
            "PartialState(backend=...)"
        ),
    ),
    check=_check,
)
