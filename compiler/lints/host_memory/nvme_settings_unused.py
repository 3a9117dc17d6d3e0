"""NVMe is configured, and nothing goes there."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BLOCKS: Final = ("offload_optimizer", "offload_param")


def _check(run: Run) -> Iterator[Finding]:
    devices = [run.effective("deepspeed", f"zero_optimization.{name}.device") for name in _BLOCKS]
    if not run.of("deepspeed") or any(each.value == "nvme" for each in devices):
        return
    for document in run.of("deepspeed"):
        said = [document.get(f"zero_optimization.{name}.nvme_path") for name in _BLOCKS]
        said = [each for each in said if each is not None and each.value not in (None, "none")]
        aio = document.get("aio")
        places = [*said, *([aio] if aio is not None and aio.node.fields else [])]
        for place in (each for each in places if each is not None):
            yield Finding(
                f"{place.path.rpartition('.')[2]} is not used: nothing is offloaded to NVMe",
                (place.key_label("not used"),),
                (),
                "write device: nvme, or remove it",
                Fix((place.removed(),), "safe") if not document.is_view else None,
            )


RULE = Rule(
    name="nvme-settings-unused",
    severity="note",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage3.py `_configure_offloading`, "
            "runtime/zero/parameter_offload.py: nvme_path and aio are read for device nvme only"
        ),
    ),
    check=_check,
)
