"""Address and port where processes meet."""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import (
    COMMANDS,
    count,
    every_launch,
    launches,
    variable,
    variables,
)
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace
from tunec.schemas.source import lines_of
from tunec.targets.launch.lines import at_offset, scripts

_ADDRESS_FLAGS: Final = ("flags.master_addr", "flags.main_process_ip", "environment.MASTER_ADDR")
_FORMS: Final = (
    (re.compile(r"\w+://.*"), "it begins with a scheme"),
    (re.compile(r"[^@\s]+@\S+"), "a user name precedes it"),
    (re.compile(r"[^:\s]+:\d+"), "a port follows it, which has its own setting"),
    (re.compile(r"\S+/.*"), "a path follows it"),
    (re.compile(r".*\s.*"), "it contains a space"),
)


@rule(
    "error",
    "init",
    consumers=("torch",),
    reads=("accelerate:main_process_ip", *keys("launch", *_ADDRESS_FLAGS)),
)
def address_refused(run: LintContext) -> Iterator[Finding]:
    """The address of the first node is not a host name."""
    places = [*run.each("accelerate", "main_process_ip")]
    places += [place for flag in _ADDRESS_FLAGS for place in run.each("launch", flag)]
    for place in places:
        why = _why(place)
        if why is not None:
            yield Finding(
                f"{place.path.rpartition('.')[2]} {place.value} is not an address: {why}",
                (place.label("cannot be resolved"),),
                ("every process looks this name up to meet the others",),
                "write the host's name or number alone",
            )


def _why(place: Place) -> str | None:
    text = place.word or ""
    if "$" in text or text.count(":") > 1:  # not known, or a number of version 6
        return None
    return next((why for form, why in _FORMS if form.fullmatch(text)), None)


_DRAWN: Final = re.compile(
    r"--rdzv[_-]id[= ]\"?(\$\{?RANDOM\}?|\$\$|\$\((?:date|uuidgen|hostname)\b[^)]*\)|`date[^`]*`)"
)
"""Expressions whose value differs on each node, or at each start."""
_OWN_PLACE: Final = re.compile(
    r"\bsrun\b[^\n']*\b(?:ba|z)?sh\s+-l?c\s+'[^']*"
    r"--(?P<flag>rdzv[_-]endpoint|master[_-]addr)[= ](?P<host>\$\(hostname[^)]*\)|\$\{?HOSTNAME\}?)"
)
"""In single quotes the shell of each node expands the name, not the one that calls srun."""


@rule("error", "hang", consumers=("torch",), reads=COMMANDS)
def meeting_of_another_name(run: LintContext) -> Iterator[Finding]:
    """Nodes meet under an id, or at an address, that differs on each of them."""
    batches = {each.name for each in run.of("slurm")}
    for document in scripts(run):
        if document.name not in batches and _has_nodes(run, document):
            yield from _drawn(document)
        yield from _own_place(document)


def _has_nodes(run: LintContext, document: Document) -> bool:
    mine = (each for each in launches(run, "torchrun") if each.name == document.name)
    return any((count(each.get("nodes")) or 0) > 1 for each in mine)


def _drawn(document: Document) -> Iterator[Finding]:
    """Ids that differ on each node: a script that is no batch script runs on each of them."""
    for found in _DRAWN.finditer(document.text):
        yield Finding(
            f"--rdzv_id {found[1]} differs on each node",
            (
                _meeting_label(
                    document, found.start(1), found[1], "rdzv_id", "each node draws its own"
                ),
            ),
            ("nodes of one run share an id; here each waits under its own",),
            "write the same word for all nodes",
        )


def _own_place(document: Document) -> Iterator[Finding]:
    for found in _OWN_PLACE.finditer(document.text):
        host, flag = found["host"], found["flag"].replace("-", "_")
        yield Finding(
            f"--{flag} {host} is the name of each node itself",
            (_meeting_label(document, found.start("host"), host, flag, "evaluated on each node"),),
            (
                (
                    "srun starts this shell on every node, and in single quotes that shell puts "
                    "the name in: each node waits for the others at itself"
                ),
            ),
            "set the first node's name before srun: $(scontrol show hostnames | head -n 1)",
        )


def _meeting_label(document: Document, start: int, word: str, flag: str, text: str) -> Label:
    return replace(at_offset(document, start, len(word), text), path=f"flags.{flag}")


_KEYS: Final = ("flags.master_port", "flags.main_process_port")
_FIRST: Final = 1_024
"""Linux ip-sysctl, ip_unprivileged_port_start."""
_MOST: Final = 65_535
_DEFAULT: Final = 29_500
_BEHIND: Final = re.compile(r"(?<![&>|<])&(?![&>])[ \t]*(?:\n|$|;|#)")
"""A command that runs in the background."""


@rule(
    "error",
    "init",
    consumers=("torch", "deepspeed", "accelerate"),
    reads=("accelerate:main_process_port", *COMMANDS),
)
def port_taken(run: LintContext) -> Iterator[Finding]:
    """Two runs on one machine use the same port, or a port is invalid."""
    for place in _ports(run):
        if type(place.value) is int and not 0 <= place.value <= _MOST:
            yield Finding(
                f"{place.value} is not a port: the highest is {_MOST}",
                (place.label("refused"),),
                (),
                "write a number from 1024 to 65535",
            )
        elif type(place.value) is int and 0 < place.value < _FIRST:
            yield Finding(
                f"port {place.value} is a system port",
                (place.label("not open to users"),),
                (f"ports below {_FIRST} need root: Permission denied for other users",),
                "write a number from 1024 to 65535",
                severity="warning",
            )
    for document in {each.name: each for each in launches(run)}.values():
        yield from _shared(run, document)


def _ports(run: LintContext) -> Iterator[Place]:
    for document in launches(run):
        yield from (place for key in _KEYS if (place := document.get(key)) is not None)
    yield from run.each("accelerate", "main_process_port")


_JOB: Final = re.compile(r"(?m)^[ \t]*srun[ \t]")


def _makes_jobs(text: str) -> bool:
    """Whether a script requests devices of Slurm with each command, on any free node."""
    return _JOB.search(text) is not None and "#SBATCH" not in text


def _shared(run: LintContext, script: Document) -> Iterator[Finding]:
    """Runs that one script starts at the same time."""
    if not _BEHIND.search(script.text) or _makes_jobs(script.text):
        return
    mine = [
        each
        for each in every_launch(run, "torchrun", "deepspeed", "accelerate")
        if each.name == script.name and not _meets_elsewhere(each) and not _is_alone(run, each)
    ]
    mine = [each for each in mine if each is mine[-1] or _is_behind(each)]
    taken: dict[int, Document] = {}
    for document in mine:
        port = _port(document)
        if port in taken and _is_over(taken[port], document):
            taken[port] = document
        elif port in taken:
            is_left_out = _takes_a_free_port(document) or _takes_a_free_port(taken[port])
            if not (is_left_out and run.runs("torch>=2.13")):
                yield _shared_port(taken[port], document, port, is_left_out=is_left_out)
                return  # the others have the same cause
        elif port is not None:
            taken[port] = document


_WAITS: Final = re.compile(r"(?m)^[ \t]*wait\b")


def _is_over(one: Document, other: Document) -> bool:
    """Whether the script waits between two commands for what it has started."""
    ends = [at.span.line for each in (one, other) if (at := each.get("launcher")) is not None]
    between = lines_of(one.text)[min(ends, default=0) : max(ends, default=0)]
    return _WAITS.search("\n".join(between)) is not None


def _is_behind(document: Document) -> bool:
    """Whether the command runs in the background, so that the next one does not wait for it."""
    place = document.get("launcher")
    lines = lines_of(document.text)[place.span.line - 1 :] if place is not None else []
    for line in lines:
        if not line.rstrip().endswith("\\"):
            return _BEHIND.search(f"{line}\n") is not None
    return False


def _is_alone(run: LintContext, document: Document) -> bool:
    """Whether accelerate's file starts one process, which needs no port."""
    named = str(document.value("flags.config_file", ""))
    files = (e for e in run.of("accelerate") if named and named.endswith(PurePath(e.name).name))
    return any(str(each.value("distributed_type")) in ("NO", "False") for each in files)


_NUMBERS: Final = ("flags.machine_rank", "flags.node_rank")


def _meets_elsewhere(document: Document) -> bool:
    """Whether it chooses a free port, or is one of several nodes."""
    free = ("flags.standalone", "flags.rdzv_endpoint", "flags.rdzv_backend", "hostfile")
    if not document.unknown.isdisjoint(_NUMBERS) or any(map(document.get, _NUMBERS)):
        return True
    return any(document.get(key) for key in free) or (count(document.get("nodes")) or 1) > 1


def _port(document: Document) -> int | None:
    place = next((place for key in _KEYS if (place := document.get(key)) is not None), None)
    if place is None:
        return None if any(key in document.unknown for key in _KEYS) else _DEFAULT
    return place.value if type(place.value) is int and place.value else None


def _takes_a_free_port(document: Document) -> bool:
    """Whether a newer torchrun starts it on one node, with a port that it chooses itself."""
    return document.value("launcher") == "torchrun" and not any(map(document.get, _KEYS))


def _shared_port(first: Document, second: Document, port: int, *, is_left_out: bool) -> Finding:
    return Finding(
        f"two runs that are started at once meet at port {port}",
        (
            _taken_label(second, "the port is taken", primary=True),
            _taken_label(first, "", primary=False),
        ),
        (
            f"{_DEFAULT} is the default port",
            "the second fails, or joins the first: address already in use",
            *(("torchrun of torch 2.13 takes a free port instead",) * is_left_out),
        ),
        "give each run its own port",
        severity="warning" if is_left_out else None,
    )


def _taken_label(document: Document, text: str, *, primary: bool) -> Label:
    place = next((place for key in _KEYS if (place := document.get(key)) is not None), None)
    place = place or document.get("launcher")
    return (
        place.label(text, primary=primary) if place else Label(text, document.start(), "", primary)
    )


_VARIABLE_FLAGS: Final = {
    "MASTER_PORT": ("master_port", "29500"),
    "MASTER_ADDR": ("master_addr", "127.0.0.1"),
}
_ELSEWHERE: Final = ("flags.standalone", "flags.rdzv_endpoint", "flags.rdzv_backend", "hostfile")


@rule("warning", "silent", consumers=("torch", "deepspeed"), reads=variables(*_VARIABLE_FLAGS))
def port_variable_not_read(run: LintContext) -> Iterator[Finding]:
    """A variable of the rendezvous is set, and the launcher sets it itself."""
    for document in launches(run, "torchrun", "deepspeed"):
        if "$" in " ".join(_words(document)) or document.unknown:
            continue
        for name, (flag, otherwise) in _VARIABLE_FLAGS.items():
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
