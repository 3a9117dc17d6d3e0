"""More processes are started than the hardware has devices."""

from collections.abc import Iterator

from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    cluster = run.environment.cluster
    if cluster is None:
        return
    for said in run.ledger.of("parallel.world"):
        place = run.place(said)
        if said.rank == Rank.OBSERVED and place and said.value > cluster.device_count:
            yield Finding(
                f"{said.value} processes, but {cluster.name} has {cluster.device_count} devices",
                (_number(place).label("processes"),),
                (
                    "each process takes a device of its own: the others find none, or share one",
                    "NCCL refuses a device that two processes hold",
                ),
                f"start {cluster.device_count}",
            )


def _number(place: Place) -> Place:
    """Of accelerate's two counts, that of the processes."""
    both = place.document.get("num_processes") if place.path == "num_machines" else None
    return place if both is None else both


RULE = Rule(
    name="more-processes-than-devices",
    severity="error",
    consequence="init",
    consumers=("accelerate", "torch", "deepspeed"),
    sources=(
        (
            "torch 2.13.0 cuda/__init__.py `set_device`: CUDA error, invalid device ordinal; "
            "accelerate 0.33.0 to 1.15.0 state.py `PartialState.set_device`: local_process_index % "
            "device_count()"
        ),
    ),
    check=_check,
)
