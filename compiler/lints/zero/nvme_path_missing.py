"""Something is to be offloaded to NVMe, and nobody says where that is."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for block in ("offload_optimizer", "offload_param"):
        device = run.effective("deepspeed", f"zero_optimization.{block}.device")
        path = run.effective("deepspeed", f"zero_optimization.{block}.nvme_path")
        if device.value == "nvme" and device.place is not None and path.value in (None, "", "none"):
            yield Finding(
                f"{block} is to go to NVMe, and nvme_path is not given",
                (device.place.label("no nvme_path beside it"),),
                (),
                "write nvme_path, a directory on the local NVMe of each node",
            )


RULE = Rule(
    name="nvme-path-missing",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/swap_tensor/optimizer_utils.py, "
            "partitioned_param_swapper.py: os.path.join(nvme_path, ...)"
        ),
    ),
    check=_check,
)
