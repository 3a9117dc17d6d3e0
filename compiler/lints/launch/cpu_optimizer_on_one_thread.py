"""The optimizer runs on the CPU, and each process has one thread for it."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import count, launches, per_node, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    offload = run.slot("zero.offload_optimizer")
    where = run.place(offload)
    if offload is None or offload.value not in ("cpu", "nvme"):
        return
    for document in launches(run, "torchrun", "accelerate", "deepspeed"):
        place = _single(document)
        if place is None:
            continue
        yield Finding(
            "the offloaded optimizer gets one thread of each process",
            (
                place.label("OMP_NUM_THREADS is 1"),
                *([where.label("steps on the CPU", primary=False)] if where else []),
            ),
            (
                (
                    "DeepSpeedCPUAdam shares its step among the threads of OpenMP: with one, the "
                    "step takes as many times longer as there are cores for a process"
                ),
            ),
            "export OMP_NUM_THREADS as cores divided by processes",
        )


def _single(document: Document) -> Place | None:
    """Where it comes about that there is one thread."""
    said = variable(document, "OMP_NUM_THREADS")
    if said is not None:
        return said if count(said) == 1 else None
    if "environment.OMP_NUM_THREADS" in document.unknown or _leaves_threads(document):
        return None
    if document.value("launcher") == "accelerate":
        threads = document.get("flags.num_cpu_threads_per_process")
        is_one = threads is None or count(threads) == 1
        return (threads or document.get("launcher")) if is_one else None
    started = per_node(document)
    return started[1] if started is not None and started[0] > 1 else None


def _leaves_threads(document: Document) -> bool:
    """deepspeed 0.14.5 to 0.19.8 launcher/launch.py sets the variable only to bind cores."""
    return bool(document.value("launcher") == "deepspeed")


RULE = Rule(
    name="cpu-optimizer-on-one-thread",
    severity="warning",
    consequence="slow",
    consumers=("torch", "deepspeed"),
    sources=(
        (
            "torch 2.13.0 distributed/run.py `config_from_args`: OMP_NUM_THREADS is set to 1 where "
            "it is unset and nproc_per_node > 1"
        ),
        "accelerate 0.30.1 to 1.15.0 commands/launch.py: num_cpu_threads_per_process, 1",
        "deepspeed 0.19.8 csrc/includes/cpu_adam.h: #pragma omp parallel for",
    ),
    check=_check,
)
