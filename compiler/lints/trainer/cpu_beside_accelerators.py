"""Training is to run on the processor of a machine with accelerators."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = ("use_cpu", "no_cuda")


def _check(run: Run) -> Iterator[Finding]:
    cluster = run.environment.cluster
    if cluster is None or cluster.device_count < 1:
        return
    for kind in ("trainer", "accelerate"):
        for key in _KEYS:
            for place in run.each(kind, key):
                if place.value is True:
                    yield Finding(
                        f"{key}: the {cluster.device_count} devices of {cluster.name} are not used",
                        (place.label("on the processor"),),
                        (),
                        "remove it",
                        Fix((place.removed(),), "unsafe"),
                    )


RULE = Rule(
    name="cpu-beside-accelerators",
    severity="warning",
    consequence="slow",
    consumers=("transformers", "accelerate"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `_setup_devices`: use_cpu, and no_cuda "
            "up to 4.57"
        ),
    ),
    check=_check,
)
