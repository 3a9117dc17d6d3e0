"""Several machines, and no address at which they meet."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.accelerate.counted import count, engine
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_ENGINES: Final = ("MULTI_GPU", "FSDP", "MEGATRON_LM")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        kind, machines = engine(document), count(document, "num_machines")
        if kind is None or kind.value not in _ENGINES or machines is None or machines[0] < 2:
            continue
        if document.value("main_process_ip") is None:
            yield Finding(
                f"{machines[0]} machines and no main_process_ip",
                (machines[1].label("they meet at None"), kind.label("", primary=False)),
                ("the address can also be given on the command line",),
                "write main_process_ip and main_process_port",
            )


RULE = Rule(
    name="machines-without-address",
    severity="warning",
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
