"""Launch scripts of a run: who starts how many processes, with which environment and hosts."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.counts import is_whole
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import keys

_PROGRAM: Final = re.compile(r"(?:\A|/)(?:python[\d.]*|torchrun|accelerate|deepspeed)\Z|\.py\Z")

COMMANDS: Final = ("launch:*",)
"""What a rule reads that is asked of every run with a command that starts something."""


def flags(*names: str) -> tuple[str, ...]:
    """Flags of launchers, as a rule names what it reads."""
    return keys("launch", *(f"flags.{name}" for name in names))


def variables(*names: str) -> tuple[str, ...]:
    """Variables that a script sets for what it starts, as a rule names what it reads."""
    return keys("launch", *(f"environment.{name}" for name in names))


VISIBLE_DEVICES: Final = variables("CUDA_VISIBLE_DEVICES")


def launches(run: LintContext, *launchers: str) -> Iterator[Document]:
    """The commands of scripts that these launchers start; all without a name."""
    for document in run.of("launch"):
        if not launchers or document.value("launcher") in launchers:
            yield document


def variable(document: Document, name: str) -> Place | None:
    """Where a script sets a variable of the environment."""
    return document.get(f"environment.{name}")


def is_unknown(document: Document, key: str) -> bool:
    """Whether a key is given a value that only running the script tells."""
    return key in document.unknown


def count(place: Place | None) -> int | None:
    """A whole number above zero."""
    value: Any = None if place is None else place.value
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return value if is_whole(value) and value > 0 else None


def listed(place: Place | None) -> tuple[str, ...] | None:
    """Devices as CUDA_VISIBLE_DEVICES lists them; None where there is no such list."""
    if place is None or place.value is None:
        return None
    names = [each.strip() for each in str(place.value).split(",")]
    return tuple(each for each in names if each) or None


def per_node(document: Document) -> tuple[int, Place] | None:
    """Processes that a command starts on each node, and where it says so."""
    place = document.get("per_node")
    number = count(place)
    if number is not None and place is not None:
        return number, place
    place = document.get("processes")
    number, nodes = count(place), count(document.get("nodes")) or 1
    if number is None or place is None or number % nodes:
        return None
    return number // nodes, place


def batch_of(run: LintContext, document: Document) -> Document | None:
    """The `#SBATCH` lines of the same file."""
    return next((each for each in run.of("slurm") if each.name == document.name), None)


def may_start(starter: Document, inner: Document) -> bool:
    """Whether a command may be what `srun` or `mpirun` starts: not where it starts another one."""
    script, at = starter.get("script"), inner.get("launcher")
    words = script.value if script is not None and isinstance(script.value, list) else []
    if starter.name != inner.name or script is None or at is None or not words:
        return starter.name == inner.name
    is_told = _PROGRAM.search(str(words[0])) is not None
    return not is_told or script.span.line <= at.span.line <= script.span.end_line


def numbers_nodes_itself(document: Document) -> bool:
    """Whether the rendezvous of torchrun gives the nodes their numbers, whatever --node_rank says.

    torch 2.13.0 distributed/run.py: --node_rank is for the static rendezvous.
    """
    return document.value("flags.rdzv_backend", "static") not in ("static", None)


LOCAL: Final = frozenset({"127.0.0.1", "localhost", "0.0.0.0", "::1"})  # noqa: S104  nothing is bound
"""Where a process that connects reaches its own host: 0.0.0.0 is for listening alone."""


class Entry(NamedTuple):
    """One line."""

    host: str
    slots: int | None
    """None where the launcher does not read the line."""
    place: Place
    """Of the number of slots, or of the line that is not read."""

    def label(self, text: str = "", *, primary: bool = True) -> Label:
        """A label there, under the name of the host."""
        return Label(text, self.place.span, self.host, primary)


def hostfiles(run: LintContext) -> Iterator[tuple[Document, tuple[Entry, ...]]]:
    """Each hostfile with its lines, in order."""
    for document in run.of("hostfile"):
        yield document, tuple(_entries(document))


def _entries(document: Document) -> Iterator[Entry]:
    for key, line in (document.root.fields or {}).items():
        host = document.value(f"{key}.host")
        at = document.get(f"{key}.slots") or document.get(f"{key}.refused")
        if isinstance(host, str) and at is not None and line.fields is not None:
            yield Entry(host, at.value if isinstance(at.value, int) else None, at)
