"""What a target says of the programs that read its files: how to ask each, and read its answers.

A target names a module whose `PROGRAMS` are these (`Target.verify`); it is imported only when
something is verified.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from packaging.version import Version

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Artifact, Dialect, Entry, File, Found, Json, Target
from tunec.schemas.models.architecture import Architecture

Question = Mapping[str, Any]
Answers = Mapping[str, Any]
"""What programs have answered so far about one case, by the program's name."""


class NotAsked(Exception):
    """A program cannot be asked about this case; the message says why. Never a pass."""


class Delivered(Struct, frozen=True):
    """A file as the program gets it: of the target, at a path that people know, with its text."""

    name: str
    path: str
    text: str


class Case(Struct, frozen=True):
    """The files of one target at one version, and the plan that they must come to."""

    spec: str
    """The spec's name."""
    target: Target
    version: Version
    software: Mapping[str, str]
    """Versions of other distributions that the spec or the cluster names."""
    plan: Plan
    architecture: Architecture
    config: Mapping[str, Json] | None
    """The model's own config.json, where it is known whole enough to build the model from."""
    delivered: Mapping[str, Delivered]
    """By the name of the target's file."""
    expected: Mapping[str, Artifact]
    """What the plan comes to in this dialect, by the name of the target's file."""
    clones: tuple[Path, ...] = ()
    """Where clones of repositories lie whose programs are on no package index."""

    @property
    def dialect(self) -> Dialect:
        """The versions that select keys."""
        return self.target.dialect(self.version, self.software)

    def file(self, name: str) -> File:
        """The target's file of that name."""
        return next(each for each in self.target.files if each.name == name)

    def rows(self, name: str) -> tuple[Entry, ...]:
        """The rows of a file that matter in this plan and dialect."""
        dialect = self.dialect
        return tuple(
            each
            for each in self.file(name).entries
            if each.holds_in(dialect) and each.when(self.plan)
        )

    def text(self, name: str) -> str:
        """What a delivered file says."""
        return self.delivered[name].text

    def machine(self) -> dict[str, Any]:
        """What the program sees of the declared hardware, as questions hold it."""
        devices = self.plan.devices
        seen: dict[str, Any] = {
            "devices": devices.per_node,
            "memory": devices.memory,
            "world_size": self.plan.parallel.world,
        }
        if devices.capability is not None:
            seen["capability"] = [int(part) for part in devices.capability.split(".")]
        return seen


class Where(Struct, frozen=True):
    """In which environment a program runs: a release of a consumer, and exact pins."""

    consumer: str
    version: str
    pins: tuple[str, ...]

    @property
    def name(self) -> str:
        """How people call it: `deepspeed@0.18.9`."""
        return f"{self.consumer}@{self.version}" if self.version else self.consumer


class Fact(Struct, frozen=True):
    """Something that a program says of a slot by other means than a key's resolved value."""

    slot: str
    key: str
    expected: Any
    resolved: Any


class Heard(Struct, frozen=True):
    """An answer in the words of the target's table."""

    refused: str = ""
    """Why the program would not take the file; empty: it took it."""
    unchecked: str = ""
    """Why the answer says nothing here: this machine lacks what the program asked for."""
    values: Mapping[str, Json] = field(default_factory=dict)
    """What each key of the file came to, absent ones too, by dotted path."""
    facts: tuple[Fact, ...] = ()
    ignored: tuple[str, ...] = ()
    """Keys of the file that the program did not read."""


def _found(text: str, path: str) -> Mapping[str, Found]:
    del text, path
    return {}


def refusal(answer: Mapping[str, Any]) -> str:
    """Why a program refused, at which stage if it has some; empty where it took the file."""
    refused = answer.get("refused")
    if isinstance(refused, Mapping):
        return f"{refused['stage']}: {refused['message']}"
    return refused or ""


def turned_down(_: Case, answer: Any) -> Heard | None:
    """What the answer of a program comes to that refused; None where it took the file."""
    said = refusal(answer)
    return Heard(refused=said) if said else None


def taken(answers: Answers, program: str) -> Any:
    """The answer of a program that took its file; None where it refused or has not been asked."""
    answer = answers.get(program)
    return None if answer is None or refusal(answer) else answer


class Program(Struct, frozen=True):
    """One program that reads a file of a target.

    `question` may look at the answers of the program that it comes `after`; it returns None where
    the plan leaves nothing to ask, and raises NotAsked where the program cannot be asked.
    """

    name: str
    """In the words of its users: `transformers TrainingArguments`."""
    file: str
    """The target's file that it is asked about."""
    script: str
    """Dotted name of the module with the verbs."""
    where: Callable[[Case], Where]
    """Raises EnvironmentUnavailable."""
    question: Callable[[Case, Answers], Question | None]
    hear: Callable[[Case, Any], Heard]
    """Of an answer that says more than that the file was not taken."""
    after: str = ""
    seconds: float = 180.0
    """How long it may take to answer all questions of one environment."""
    places: Callable[[str, str], Mapping[str, Found]] = _found
    """Where the keys of a text stand (text, path), for formats that have no tree of nodes."""
    unheard: Callable[[Case, Any], Heard | None] = turned_down
    """What an answer comes to that has nothing to be heard; None where it has."""

    def heard(self, case: Case, answer: Any) -> Heard:
        """The whole answer in the words of the target's table."""
        return self.unheard(case, answer) or self.hear(case, answer)


def flat(document: Json, prefix: str = "") -> dict[str, Json]:
    """A document's leaves by dotted path; lists, and mappings that are empty, are leaves."""
    if not isinstance(document, Mapping) or not document:
        return {prefix.removesuffix("."): document} if prefix else {}
    found: dict[str, Json] = {}
    for key, value in document.items():
        found |= flat(value, f"{prefix}{key}.")
    return found


def at(tree: Json, key: str) -> Json:
    """The value at a dotted path; None where there is none."""
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def facts(pairs: Sequence[tuple[str, str, Any, Any]]) -> tuple[Fact, ...]:
    """Facts from (slot, key, expected, resolved)."""
    return tuple(Fact(*pair) for pair in pairs)
