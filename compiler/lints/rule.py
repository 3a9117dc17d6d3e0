"""What a rule is, and what it finds."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Fix, Label, Severity, Term

if TYPE_CHECKING:
    from tunec.compiler.lints.context import LintContext

Consequence = Literal[
    "silent",
    "parse",
    "load",
    "init",
    "step",
    "out-of-memory",
    "hang",
    "save",
    "resume",
    "slow",
    "unclear",
]
"""What happens to a run that has the fault, and when its owner finds out."""

CONSEQUENCES: Final[dict[Consequence, str]] = {
    "silent": "no error: the run continues, but not as intended",
    "parse": "rejected while the configuration is read",
    "load": "fails while the model is loaded",
    "init": "rejected when trainer and engine are set up, before the first step",
    "step": "fails, or goes wrong, in the first steps",
    "out-of-memory": "runs out of memory",
    "hang": "hangs without an error",
    "save": "fails, or loses something, when a checkpoint is written",
    "resume": "fails when training is resumed or the best model is loaded",
    "slow": "runs, but slower than the hardware allows",
    "unclear": "not known from what was read",
}
"""The words in which each is told."""

ALWAYS: Final = ("*",)
"""What a rule reads that is asked of every run."""


def keys(kinds: str, *names: str) -> tuple[str, ...]:
    """What a rule reads that asks several kinds of document for keys: `keys("dpo|kto", "beta")`."""
    return tuple(f"{kind}:{name}" for kind in kinds.split("|") for name in names)


class Finding(Struct, frozen=True):
    """One occurrence of what a rule speaks of; `LintContext` and `Place` help to build it."""

    message: str
    """What is wrong here, with the values; stands alone; lower case, no final period."""
    labels: tuple[Label, ...]
    """Where: the first primary label is where people look first; the other file's place, where two
    disagree, is a label too, with `primary=False`."""
    notes: tuple[str, ...] = ()
    """Facts about what really happens in that version."""
    help: str | None = None
    """The smallest change that mends it."""
    fix: Fix | None = None
    sum: tuple[Term, ...] = ()
    """The terms behind a number in the message."""
    certain: bool = True
    """False where it rests on something unknown (who reads the file, how many processes): then it
    is told as a note that begins with `cannot tell`, and never fails a run."""
    consequence: Consequence | None = None
    """Where it differs from the rule's own, as between versions."""
    severity: Severity | None = None
    """Where this occurrence is less severe than the rule's own severity."""


class Rule(Struct, frozen=True):
    """One rule: a function below `@rule(...)`, or `rows(...)`, in a module of its subject.

    A rule that concerns several programs stands in `compiler/lints/checks/<subject>`, one of a
    single target in `targets/<name>/rules`. `name` names the bad thing, so that `allow(name)` reads
    well; its page is `<name>.md` in the folder of its module.
    """

    name: str
    severity: Severity
    """`error`: the run fails or does not do what is written. `warning`: it does, but is probably
    not what was meant, or is worse than it need be."""
    consequence: Consequence
    consumers: tuple[str, ...]
    """Whose behaviour it is, with the versions that have it: `("deepspeed>=0.19.6",)`.

    The rule is left out where a version is known and outside. Where a range is given and nobody
    named the version, an error becomes a warning that says so, as another release behaves
    otherwise. Leave the range out where every release that tunec knows behaves so.
    """
    sources: tuple[str, ...]
    """Repository, version and symbol, or thread, of each fact."""
    reads: tuple[str, ...]
    """Keys of which at least one is written wherever the rule finds anything, each after its kind
    of document: `deepspeed:zero_optimization.stage`, `trainer:bf16`, or `peft:*` for any key;
    `slot:adapter.kind` for any key that says a slot. The rule is asked only then
    (`tunec.compiler.lints.index`)."""
    hardware: bool
    """Whether it asks for the cluster, its devices or its hosts; the number of processes is none
    of these. What another rule finds holds for all hardware (`tunec.compiler.lints.remembered`)."""
    check: "Callable[[LintContext], Iterable[Finding]]"
    """Pure; raises nothing for any input; yields findings in the order of the document."""


def rule(
    name: str,
    severity: Severity,
    consequence: Consequence,
    *,
    consumers: tuple[str, ...],
    sources: str | tuple[str, ...],
    reads: tuple[str, ...] = ALWAYS,
    hardware: bool = False,
) -> "Callable[[Callable[[LintContext], Iterable[Finding]]], Rule]":
    """Make a rule of the function below it; the arguments are the fields of `Rule`.

    One source may stand for itself.
    """
    every = (sources,) if isinstance(sources, str) else sources

    def made(check: "Callable[[LintContext], Iterable[Finding]]") -> Rule:
        return Rule(name, severity, consequence, consumers, every, reads, hardware, check)

    return made
