"""The processes cannot be spread evenly over the machines."""

from collections.abc import Iterator

from tunec.compiler.lints.accelerate.counted import count
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        asked, machines = _asked(run, document), count(document, "num_machines")
        if asked is None or machines is None or asked[0] % machines[0] == 0:
            continue
        each = asked[0] // machines[0]
        yield Finding(
            f"{asked[0]} processes over {machines[0]} machines: each starts {each}",
            (
                asked[1].label("the processes of all machines together"),
                machines[1].label("", primary=False),
            ),
            (f"the division is rounded down: {each * machines[0]} processes in all",),
            f"write {max(each, 1) * machines[0]}: num_processes counts all machines",
        )


def _asked(run: Run, document: Document) -> tuple[int, Place] | None:
    """By the one command that starts it, whose flag comes first, else by the file."""
    commands = [each for each in run.of("launch") if each.value("launcher") == "accelerate"]
    if len(commands) == 1 and len(run.of("accelerate")) == 1:
        flag = commands[0].get("flags.num_processes")
        if flag is not None and is_whole(flag.value):
            return flag.value, flag
    return count(document, "num_processes")


RULE = Rule(
    name="processes-not-even-over-machines",
    severity="error",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/launch.py `prepare_multi_gpu_env`, "
            "`prepare_deepspeed_cmd_env`: nproc_per_node = num_processes // num_machines"
        ),
    ),
    check=_check,
)
