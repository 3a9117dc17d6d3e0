"""A variable for the meeting point is set, and the launcher sets it itself."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches, variable
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FLAGS: Final = {
    "MASTER_PORT": ("master_port", "29500"),
    "MASTER_ADDR": ("master_addr", "127.0.0.1"),
}
_ELSEWHERE: Final = ("flags.standalone", "flags.rdzv_endpoint", "flags.rdzv_backend", "hostfile")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "torchrun", "deepspeed"):
        if "$" in " ".join(_words(document)) or document.unknown:
            continue
        for name, (flag, otherwise) in _FLAGS.items():
            place = variable(document, name)
            if place is None or str(place.value) == otherwise or place.value == "localhost":
                continue
            if document.get(f"flags.{flag}") or any(map(document.get, _ELSEWHERE)):
                continue
            launcher = document.value("launcher")
            taken = "29500 or a free port" if launcher == "torchrun" else otherwise
            met = taken if flag == "master_port" else otherwise
            yield Finding(
                f"{launcher} does not read {name}: processes meet at {met}",
                (place.label(f"overwritten by --{flag}"),),
                ("the launcher sets the variable for the processes that it starts",),
                f"write --{flag} {place.value}",
            )


def _words(document: Document) -> list[str]:
    return [str(each) for each in document.value("script", [])]


RULE = Rule(
    name="port-variable-not-read",
    severity="warning",
    consequence="silent",
    consumers=("torch", "deepspeed"),
    sources=(
        (
            "torch 2.13.0 distributed/run.py: --master-port is PET_MASTER_PORT or left out; `run`: "
            "then 29500, or with one node a free port; the agent sets MASTER_PORT"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/launch.py: "
            'current_env["MASTER_PORT"] = str(args.master_port)'
        ),
    ),
    check=_check,
)
