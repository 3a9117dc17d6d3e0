"""accelerate is told to use several devices and given one."""

from collections.abc import Iterator

from tunec.compiler.lints.launch.scripts import count, launches, listed
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        kind, chosen = document.get("distributed_type"), document.get("gpu_ids")
        nodes = count(document.get("num_machines")) or 1
        if kind is None or chosen is None or kind.value != "MULTI_GPU" or nodes > 1:
            continue
        if _is_one(chosen):
            yield Finding(
                f"MULTI_GPU with gpu_ids {chosen.value}",
                (chosen.label("one device"), kind.label("", primary=False)),
                ("accelerate: Less than two GPU ids were configured",),
                "set distributed_type to NO, or list more devices",
            )
    for document in launches(run, "accelerate"):
        flag, processes = document.get("flags.multi_gpu"), document.get("processes")
        listed_one = document.get("flags.gpu_ids")
        if flag is not None and listed_one is not None and _is_one(listed_one):
            yield Finding(
                f"--multi_gpu with --gpu_ids {listed_one.value}",
                (listed_one.label("one device"), flag.key_label("", primary=False)),
                ("accelerate: Less than two GPU ids were configured",),
                "leave --multi_gpu out, or list more devices",
            )
        if flag is not None and processes is not None and count(processes) == 1:
            yield Finding(
                "--multi_gpu with --num_processes 1",
                (processes.label("one process"), flag.key_label("", primary=False)),
                ("accelerate: You need to use at least 2 processes to use `--multi_gpu`",),
                "leave --multi_gpu out",
            )


def _is_one(place: Place) -> bool:
    """Whether one device is listed, and not all."""
    names = listed(place)
    return str(place.value) != "all" and names is not None and len(names) == 1


RULE = Rule(
    name="one-device-for-multi-gpu",
    severity="error",
    consequence="parse",
    consumers=("accelerate",),
    sources=(
        "accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`: ValueError",
    ),
    check=_check,
)
