"""Several machines, and no address at which they meet."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.accelerate.counted import count, engine
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.nodes_without_meeting_point import LOCAL
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_ENGINES: Final = ("MULTI_GPU", "FSDP", "MEGATRON_LM")
_TELLING: Final = ("main_process_ip", "config_file", "use_deepspeed", "deepspeed_hostfile", "tpu")


def _check(run: Run) -> Iterator[Finding]:
    yield from _by_flags(run)
    for document in run.of("accelerate"):
        kind, machines = engine(document), count(document, "num_machines")
        if kind is None or kind.value not in _ENGINES or machines is None or machines[0] < 2:
            continue
        yield from _of_itself(document, machines[1])
        if document.value("main_process_ip") is None:
            yield Finding(
                f"{machines[0]} machines and no main_process_ip",
                (machines[1].label("they meet at None"), kind.label("", primary=False)),
                ("the address can also be given on the command line",),
                "write main_process_ip and main_process_port",
                severity="warning",
            )


def _by_flags(run: Run) -> Iterator[Finding]:
    """The same by flags, where no file was read that says it."""
    for document in launches(run, "accelerate"):
        machines = document.get("flags.num_machines")
        if machines is None or type(machines.value) is not int or machines.value < 2:
            continue
        is_told = any(document.get(f"flags.{each}") for each in _TELLING) or run.of("accelerate")
        if is_told or document.unknown:
            continue
        yield Finding(
            f"{machines.value} machines and no --main_process_ip",
            (machines.label("they meet at None"),),
            ("a default file of accelerate's may say it, which is not read here",),
            "write --main_process_ip and --main_process_port",
            severity="warning",
        )


def _of_itself(document: Document, machines: Place) -> Iterator[Finding]:
    """An address or a port that is another one on every machine."""
    address, port = document.get("main_process_ip"), document.get("main_process_port")
    for place, is_own in (
        (address, address is not None and address.value in LOCAL),
        (port, port is not None and port.value in (0, "0") and port.value is not False),
    ):
        if place is not None and is_own:
            yield Finding(
                f"{machines.value} machines that meet at {place.path} {place.value}",
                (
                    place.label("another one on every machine"),
                    machines.label("", primary=False),
                ),
                ("each machine waits at itself until the rendezvous times out",),
                "write what the first machine is reached by",
                consequence="hang",
            )


RULE = Rule(
    name="machines-without-address",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/launch.py `prepare_multi_gpu_env`: rdzv_endpoint = "
            "f'{main_process_ip}:{main_process_port}'"
        ),
    ),
    check=_check,
)
