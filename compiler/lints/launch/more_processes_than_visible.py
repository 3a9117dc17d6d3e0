"""More processes on a node than devices that they may see."""

from collections.abc import Iterator

from tunec.compiler.lints.launch.more_than_allocated import of_file
from tunec.compiler.lints.launch.scripts import count, launches, listed, per_node, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "torchrun", "accelerate"):
        found, visible = per_node(document), variable(document, "CUDA_VISIBLE_DEVICES")
        found = found or of_file(run, document)
        if found is not None and visible is not None:
            yield from _compared(*found, visible)
    for document in run.of("accelerate"):
        chosen, processes = document.get("gpu_ids"), document.get("num_processes")
        nodes, number = count(document.get("num_machines")) or 1, count(processes)
        if chosen is None or chosen.value == "all" or processes is None or number is None:
            continue
        yield from _compared(number // nodes, processes, chosen)


def _compared(number: int, processes: Place, visible: Place) -> Iterator[Finding]:
    names = listed(visible)
    if names is None or number <= len(names) or names == ("-1",):
        return
    yield Finding(
        f"{number} processes on a node see {len(names)} device{'s' * (len(names) > 1)}",
        (
            processes.label(f"{number} processes"),
            visible.label(f"{len(names)} visible", primary=False),
        ),
        ("process n takes device n of those that it sees: `invalid device ordinal`",),
        f"start {len(names)}, or make more devices visible",
    )


RULE = Rule(
    name="more-processes-than-visible",
    severity="error",
    consequence="init",
    consumers=("torch", "accelerate"),
    sources=(
        (
            "torch 2.13.0 cuda/__init__.py `set_device`; accelerate 1.15.0 state.py "
            "`PartialState.set_device`: the device of the local rank"
        ),
        "NVIDIA CUDA C++ Programming Guide, CUDA_VISIBLE_DEVICES (12.6)",
    ),
    check=_check,
)
