"""A launcher is given a flag that only another launcher has."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OWN: Final[Mapping[str, Mapping[str, str]]] = {
    "torchrun": {"devices": "nproc_per_node", "nodes": "nnodes", "rank": "node_rank"},
    "deepspeed": {"devices": "num_gpus", "nodes": "num_nodes", "rank": "node_rank"},
    "accelerate": {"devices": "num_processes", "nodes": "num_machines", "rank": "machine_rank"},
}
"""What each launcher calls the processes of a node (accelerate: of all nodes), and the nodes."""
_ALONE: Final = {"deepspeed": ("include", "exclude", "hostfile"), "torchrun": ("rdzv_endpoint",)}
"""Flags that accelerate and the other of the two have under no name, or in another form."""


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, *_OWN):
        launcher = str(document.value("launcher"))
        for name, (owner, meant) in foreign(launcher).items():
            if (at := document.get(f"flags.{name}")) is not None:
                yield _finding(at, name, (launcher, owner), _OWN[launcher].get(meant))


def foreign(launcher: str) -> dict[str, tuple[str, str]]:
    """The flags that this launcher lacks: whose each is, and what it tells."""
    own = _OWN[launcher].values()
    found = {
        name: (owner, meant)
        for owner, names in _OWN.items()
        for meant, name in names.items()
        if name not in own
    }
    alone = {
        name: (owner, "")
        for owner, names in _ALONE.items()
        for name in names
        if owner != launcher and not (launcher == "accelerate" and name.startswith("rdzv"))
    }
    return found | alone


def _finding(at: Place, name: str, who: tuple[str, str], meant: str | None) -> Finding:
    launcher, owner = who
    return Finding(
        f"--{name} is a flag of {owner}, and {launcher} starts the run",
        (at.label(f"{launcher} has no such flag"),),
        (f"{launcher}: unrecognized arguments: --{name}",),
        f"write --{meant}" if meant else f"remove it, or start the run with {owner}",
    )


RULE = Rule(
    name="launcher-flag-of-another",
    severity="error",
    consequence="parse",
    consumers=("torch", "deepspeed", "accelerate"),
    sources=(
        "torch 2.13.0 distributed/run.py `get_args_parser`; asked: unrecognized arguments",
        "deepspeed 0.19.8 launcher/runner.py `parse_args`; asked: unrecognized arguments",
        "accelerate 1.15.0 commands/launch.py `launch_command_parser`; asked likewise",
    ),
    check=_check,
)
