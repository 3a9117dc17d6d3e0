"""A count in accelerate's file that is text."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        if document.is_view:
            continue
        port = document.get("main_process_port")
        if port is not None and _is_text(port):
            yield _finding(port, "TypeError: the port is asked for as a number")
        machines, processes = document.get("num_machines"), document.get("num_processes")
        if machines is not None and _is_text(machines):
            yield _finding(machines, "TypeError: '>' not supported between str and int")
        elif processes is not None and _is_text(processes) and _is_several(machines):
            yield _finding(processes, "TypeError: the number is divided by num_machines")


def _is_text(at: Place) -> bool:
    return isinstance(at.value, str) and not _is_open(at.value)


def _is_several(machines: Place | None) -> bool:
    """On one machine the word is handed on to torchrun, which knows `gpu` and reads digits."""
    return machines is not None and isinstance(machines.value, int) and machines.value > 1


def _is_open(text: str) -> bool:
    """Whether something else fills it in before accelerate reads it."""
    return any(sign in text for sign in "${<")


_HELP: Final = {"num_processes": "write the number, of processes over all machines"}


def _finding(at: Place, why: str) -> Finding:
    number = int(at.value) if at.value.strip().isdigit() else None
    return Finding(
        f"{at.path} is the text {at.value!r}, and no number",
        (at.label("text"),),
        (why,),
        _HELP.get(at.path, "write the number") if number is None else f"write {number}",
        Fix((at.replaced(number),), "safe") if number is not None else None,
    )


RULE = Rule(
    name="count-without-a-number",
    severity="error",
    consequence="parse",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/launch.py `prepare_multi_gpu_env`, "
            "`prepare_deepspeed_cmd_env`: num_processes // num_machines as they are written"
        ),
        "NVIDIA/Model-Optimizer#318",
    ),
    check=_check,
)
