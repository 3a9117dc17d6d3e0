"""Two runs of one machine that meet at the same port, or a port that there is not."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import count, launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = ("flags.master_port", "flags.main_process_port")
_FIRST: Final = 1_024
"""Linux ip-sysctl, ip_unprivileged_port_start."""
_MOST: Final = 65_535
_DEFAULT: Final = 29_500
_BEHIND: Final = re.compile(r"(?<![&>|<])&(?![&>])[ \t]*(?:\n|$|;|#)")
"""A command that the shell does not wait for."""


def _check(run: Run) -> Iterator[Finding]:
    for place in _ports(run):
        if type(place.value) is int and not 0 <= place.value <= _MOST:
            yield Finding(
                f"{place.value} is no port: the last is {_MOST}",
                (place.label("refused"),),
                (),
                "write a number from 1024 to 65535",
            )
        elif type(place.value) is int and 0 < place.value < _FIRST:
            yield Finding(
                f"port {place.value} is one of the system's",
                (place.label("refused to users"),),
                (f"ports below {_FIRST} are for root: Permission denied, where root may not",),
                "write a number from 1024 to 65535",
                severity="warning",
            )
    for document in {each.name: each for each in launches(run)}.values():
        yield from _shared(run, document)


def _ports(run: Run) -> Iterator[Place]:
    for document in launches(run):
        yield from (place for key in _KEYS if (place := document.get(key)) is not None)
    yield from run.each("accelerate", "main_process_port")


def _shared(run: Run, script: Document) -> Iterator[Finding]:
    """Runs that one script starts at once."""
    mine = [
        each
        for each in launches(run, "torchrun", "deepspeed", "accelerate")
        if each.name == script.name and not _meets_elsewhere(each)
    ]
    if len(mine) < 2 or len(_BEHIND.findall(script.text)) < 1:
        return
    taken: dict[int, Document] = {}
    for document in mine:
        port = _port(document)
        if port in taken:
            is_left_out = _takes_a_free_port(document) or _takes_a_free_port(taken[port])
            if not (is_left_out and run.runs("torch>=2.13")):
                yield _finding(taken[port], document, port, is_left_out=is_left_out)
        elif port is not None:
            taken[port] = document


def _meets_elsewhere(document: Document) -> bool:
    """Whether it chooses a free port, or is one of several nodes."""
    free = ("flags.standalone", "flags.rdzv_endpoint", "flags.rdzv_backend", "hostfile")
    return any(document.get(key) for key in free) or (count(document.get("nodes")) or 1) > 1


def _port(document: Document) -> int | None:
    place = next((place for key in _KEYS if (place := document.get(key)) is not None), None)
    if place is None:
        return None if any(key in document.unknown for key in _KEYS) else _DEFAULT
    return place.value if type(place.value) is int and place.value else None


def _takes_a_free_port(document: Document) -> bool:
    """Whether a newer torchrun starts it, on one node, at a port that it chooses itself."""
    return document.value("launcher") == "torchrun" and not any(map(document.get, _KEYS))


def _finding(first: Document, second: Document, port: int, *, is_left_out: bool) -> Finding:
    return Finding(
        f"two runs that are started at once meet at port {port}",
        (_label(second, "the port is taken", primary=True), _label(first, "", primary=False)),
        (
            f"{_DEFAULT} is the port where none is said",
            "the second fails, or joins the first: address already in use",
            *(("torchrun of torch 2.13 takes a free port instead",) * is_left_out),
        ),
        "give each run a port of its own",
        severity="warning" if is_left_out else None,
    )


def _label(document: Document, text: str, *, primary: bool) -> Label:
    place = next((place for key in _KEYS if (place := document.get(key)) is not None), None)
    place = place or document.get("launcher")
    return (
        place.label(text, primary=primary) if place else Label(text, document.start(), "", primary)
    )


RULE = Rule(
    name="port-taken",
    severity="error",
    consequence="init",
    consumers=("torch", "deepspeed", "accelerate"),
    sources=(
        (
            "torch 2.13.0 distributed/run.py `run`: --master_port is 29500 where there are several "
            "nodes, and a free port with one; deepspeed 0.19.8 "
            "launcher/constants.py `TORCH_DISTRIBUTED_DEFAULT_PORT`; accelerate 1.15.0 "
            "utils/launch.py `prepare_multi_gpu_env`: Tried to launch distributed communication on "
            "port, but another process is utilizing it"
        ),
        "pytorch/pytorch#126510; thu-coai/CDial-GPT#103 (--master_port 66660)",
    ),
    check=_check,
)
