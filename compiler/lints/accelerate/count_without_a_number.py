"""A count in accelerate's file that is text."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.accelerate.counted import engine
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.keys.number_as_text import number_of
from tunec.compiler.lints.parallel.shared import SECTION
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_COMPARED: Final = (f"{SECTION}cp_size", f"{SECTION}sp_size")
"""Widths that the launcher compares with 1 as they are written."""


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
        elif processes is not None and isinstance(processes.value, float):
            yield replace(_finding(processes, _FRACTION), consequence="init")
        elif processes is not None and _is_text(processes) and _is_several(machines):
            yield _finding(processes, "TypeError: the number is divided by num_machines")
        yield from _of_nodes(document, machines)
        started = engine(document)
        if started is not None and started.value == "DEEPSPEED":
            yield from _of_deepspeed(document)


def _of_nodes(document: Document, machines: Place | None) -> Iterator[Finding]:
    """The rank of a node, of which the launcher makes a number, and widths that it compares."""
    rank = document.get("machine_rank")
    if rank is not None and _is_several(machines) and _is_no_rank(rank):
        yield _finding(rank, f"int('{rank.value}') is refused")
    for key in _COMPARED:
        width = document.get(key)
        if width is not None and _is_text(width):
            yield _finding(width, "TypeError: '>' not supported between str and int")


def _of_deepspeed(document: Document) -> Iterator[Finding]:
    """Numbers that reach the plugin as the text of a variable."""
    clipping = document.get("deepspeed_config.gradient_clipping")
    steps = document.get("deepspeed_config.gradient_accumulation_steps")
    if clipping is not None and _is_text(clipping) and not _is_number(clipping.value):
        why = f"float('{clipping.value}') is refused when the engine is set up"
        yield replace(_finding(clipping, why), consequence="init")
    if steps is not None and _is_no_count(steps):
        why = f"it is kept as the text {str(steps.value)!r}, and no batch is counted with it"
        yield replace(_finding(steps, why), consequence="init")


def _is_number(text: str) -> bool:
    return text.strip().lower() in ("auto", "none") or number_of(text.strip()) is not None


def _is_no_count(at: Place) -> bool:
    if isinstance(at.value, float):
        return True
    is_digits = str(at.value).strip().isdigit()
    return _is_text(at) and not is_digits and at.value.strip().lower() not in ("auto", "none")


def _is_no_rank(at: Place) -> bool:
    return _is_text(at) and not str(at.value).strip().isdigit()


def _is_text(at: Place) -> bool:
    return isinstance(at.value, str) and not _is_open(at.value)


def _is_several(machines: Place | None) -> bool:
    """On one machine the word is handed on to torchrun, which knows `gpu` and reads digits."""
    return machines is not None and isinstance(machines.value, int) and machines.value > 1


def _is_open(text: str) -> bool:
    """Whether something else fills it in before accelerate reads it."""
    return any(sign in text for sign in "${<")


_FRACTION: Final = "it is handed to torchrun as text, which takes a whole number, gpu, cpu or auto"
_HELP: Final = {"num_processes": "write the number, of processes over all machines"}


def _finding(at: Place, why: str) -> Finding:
    text = str(at.value).strip()
    number = int(text) if text.isdigit() else None
    if isinstance(at.value, float) and at.value.is_integer():
        number = int(at.value)
    return Finding(
        f"{at.path} is the text {at.value!r}, and no number"
        if isinstance(at.value, str)
        else f"{at.path} is {at.value}, and no whole number",
        (at.label("no number" if isinstance(at.value, str) else "with a point"),),
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
            "`prepare_deepspeed_cmd_env`: num_processes // num_machines as they are written; "
            "1.12.0, 1.15.0 `prepare_extend_env_parallelism_config`: cp_size > 1, sp_size > 1; "
            "utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: float(gradient_clipping), "
            "int(gas) if gas.isdigit() else gas"
        ),
        "torch 2.13.0 distributed/run.py `determine_local_world_size`: Unsupported nproc_per_node",
        "NVIDIA/Model-Optimizer#318",
    ),
    check=_check,
)
