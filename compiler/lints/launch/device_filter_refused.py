"""--include or --exclude of the deepspeed launcher in a form that it does not read."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SLOTS: Final = re.compile(r"\d+(,\d+)*")
_NUMBERS: Final = re.compile(r"[\d,\s-]+")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "deepspeed"):
        for key in ("flags.include", "flags.exclude"):
            place = document.get(key)
            why = None if place is None else _why(str(place.value), document.get("hostfile"))
            if place is not None and why is not None:
                yield _finding(place, *why)


def _why(text: str, hostfile: Place | None) -> tuple[str, bool] | None:
    """What is wrong, and whether a hostfile that is not seen could make it right."""
    for node in text.split("@"):
        host, given, slots = node.partition(":")
        if not given and _NUMBERS.fullmatch(host):
            return f"`{host}` is read as the name of a host", False
        if given and not _SLOTS.fullmatch(slots):
            return f"`{slots}` is no list of numbers", False
        if host != "localhost" and hostfile is None:
            return f"{host} is in no hostfile: none is given", True
    return None


def _finding(place: Place, why: str, is_open: bool) -> Finding:
    flag = "--" + place.path.removeprefix("flags.")
    return Finding(
        f"{flag} {place.value}: {why}",
        (place.label("refused"),),
        (
            "the form is HOST:DEVICE,DEVICE, and @ between hosts",
            *(("/job/hostfile is read where it is there",) if is_open else ()),
        ),
        "give the launcher --hostfile" if is_open else f"write {flag} localhost:0,1",
        severity="warning" if is_open else None,
    )


RULE = Rule(
    name="device-filter-refused",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `parse_resource_filter`, "
            "`parse_node_config`: NODE_SPEC is NAME[:SLOT[,SLOT ...]], Hostname not found in "
            "hostfile"
        ),
    ),
    check=_check,
)
