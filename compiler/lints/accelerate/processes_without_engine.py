"""Several processes are asked for, and nothing that would start them."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.accelerate.counted import count, engine
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        kind, asked = engine(document), count(document, "num_processes")
        if kind is None or asked is None or kind.value != "NO" or asked[0] < 2:
            continue
        if document.value("use_cpu") is True:
            continue
        yield Finding(
            f"num_processes {asked[0]} with distributed_type NO: one process is started",
            (asked[1].label("not read"), kind.label("one process", primary=False)),
            ("accelerate launch then runs the script as it is",),
            "write distributed_type: MULTI_GPU",
            Fix((kind.replaced("MULTI_GPU"),), "unsafe"),
        )


RULE = Rule(
    name="processes-without-engine",
    severity="error",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/launch.py `launch_command`: without multi_gpu, "
            "DeepSpeed or FSDP `simple_launcher` starts one process"
        ),
    ),
    check=_check,
)
