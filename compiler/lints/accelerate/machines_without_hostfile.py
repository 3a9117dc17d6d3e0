"""DeepSpeed is to start several machines, and is not told which."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.accelerate.counted import count, engine
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_STANDARD: Final = "deepspeed_config.deepspeed_multinode_launcher"
_HOSTFILE: Final = "deepspeed_config.deepspeed_hostfile"


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        kind, machines = engine(document), count(document, "num_machines")
        if kind is None or kind.value != "DEEPSPEED" or machines is None or machines[0] < 2:
            continue
        launcher = document.get(_STANDARD)
        if document.value(_HOSTFILE) is not None:
            continue
        if launcher is not None and launcher.value in ("standard", "nossh", "slurm"):
            continue
        yield Finding(
            f"{machines[0]} machines by {launcher.value if launcher else 'pdsh'}, and no hostfile",
            (
                machines[1].label("one machine is started"),
                *([launcher.label("", primary=False)] if launcher is not None else []),
            ),
            ("deepspeed finds no hostfile and goes on with local resources only",),
            "write deepspeed_hostfile, or deepspeed_multinode_launcher: standard and start "
            "accelerate on each machine",
        )


RULE = Rule(
    name="machines-without-hostfile",
    severity="warning",
    consequence="silent",
    consumers=(
        "accelerate",
        "deepspeed",
    ),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/launch.py `prepare_deepspeed_cmd_env`: pdsh by "
            "default, --hostfile str(deepspeed_hostfile)"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `fetch_hostfile`: Unable to find "
            "hostfile, will proceed with training with local resources only"
        ),
    ),
    check=_check,
)
