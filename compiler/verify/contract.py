"""The description of programs that read a target's files: how to query each and read its answers.

`Target.verify` names a module whose `PROGRAMS` are these descriptions; the module is imported only
when something is verified.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from packaging.version import Version

from tunec.compiler.consumers.environments import EnvironmentUnavailable
from tunec.compiler.consumers.sets import choose
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Artifact, Dialect, Entry, File, Found, Json, Target
from tunec.schemas.models.architecture import Architecture

Question = Mapping[str, Any]
Answers = Mapping[str, Any]
"""The answers of programs so far about one case, by program name."""


class NotAsked(Exception):
    """A program cannot be queried about this case; the message says why. This is never a pass."""


class Delivered(Struct, frozen=True):
    """A file as the program gets it: its name in the target, a path to show, and the text."""

    name: str
    path: str
    text: str


class Case(Struct, frozen=True):
    """The files of one target at one version, and the plan that they must resolve to."""

    spec: str
    """The spec's name."""
    target: Target
    version: Version
    software: Mapping[str, str]
    """Versions of other distributions that the spec or the cluster sets."""
    plan: Plan
    architecture: Architecture
    config: Mapping[str, Json] | None
    """The model's own config.json, if it is complete enough to build the model."""
    delivered: Mapping[str, Delivered]
    """By the name of the target's file."""
    expected: Mapping[str, Artifact]
    """The files that the plan gives in this dialect, by the name of the target's file."""
    clones: tuple[Path, ...] = ()
    """Folders with clones of repositories whose programs are not on any package index."""

    @property
    def dialect(self) -> Dialect:
        """The versions that select the keys."""
        return self.target.dialect(self.version, self.software)

    def file(self, name: str) -> File:
        """The target's file with this name."""
        return next(each for each in self.target.files if each.name == name)

    def rows(self, name: str) -> tuple[Entry, ...]:
        """The rows of a file that apply to this plan and dialect."""
        dialect = self.dialect
        return tuple(
            each
            for each in self.file(name).entries
            if each.holds_in(dialect) and each.when(self.plan)
        )

    def text(self, name: str) -> str:
        """The text of a delivered file."""
        return self.delivered[name].text

    def machine(self) -> dict[str, Any]:
        """The declared hardware as questions describe it to programs."""
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
    """The environment that a program runs in: a release of a consumer, and exact pins."""

    consumer: str
    version: str
    pins: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name to show: `deepspeed@0.18.9`."""
        return f"{self.consumer}@{self.version}" if self.version else self.consumer


def known_environment(
    package: str, version: Version, releases: Collection[str] = (), *, beside: tuple[str, ...] = ()
) -> Where:
    """The set of packages of a release, and pins `beside` it.

    Raises EnvironmentUnavailable if there is none, or the release is not among `releases`.
    """
    require_known(package, version, releases)
    known = choose(package, str(version))
    return Where(known.consumer, known.version, (*known.requirements, *beside))


def require_known(package: str, version: Version, releases: Collection[str]) -> None:
    """Raises EnvironmentUnavailable for a release other than these, such as one that is only read.

    Without `releases`, any is taken.
    """
    if releases and str(version) not in releases:
        raise EnvironmentUnavailable(f"{package}=={version}", "no set of packages is known")


class Fact(Struct, frozen=True):
    """A value of a slot that a program reports by other means than a key's resolved value."""

    slot: str
    key: str
    expected: Any
    resolved: Any


class TranslatedAnswer(Struct, frozen=True):
    """An answer translated to the keys of the target's table."""

    refused: str = ""
    """Why the program refused the file; empty if it accepted the file."""
    unchecked: str = ""
    """Why the answer shows nothing: this machine lacks something that the program needs."""
    values: Mapping[str, Json] = field(default_factory=dict)
    """The resolved value of each of the file's keys, including absent ones, by dotted path."""
    facts: tuple[Fact, ...] = ()
    ignored: tuple[str, ...] = ()
    """Keys of the file that the program did not read."""


def _found(text: str, path: str) -> Mapping[str, Found]:
    del text, path
    return {}


def refusal(answer: Mapping[str, Any]) -> str:
    """Why a program refused, with the stage if there are several; empty if it accepted the file."""
    refused = answer.get("refused")
    if isinstance(refused, Mapping):
        return f"{refused['stage']}: {refused['message']}"
    return refused or ""


def turned_down(_: Case, answer: Any) -> TranslatedAnswer | None:
    """The refusal in a program's answer; None if the program accepted the file."""
    said = refusal(answer)
    return TranslatedAnswer(refused=said) if said else None


def taken(answers: Answers, program: str) -> Any:
    """The answer of a program that accepted its file; None if it refused or was not queried yet."""
    answer = answers.get(program)
    return None if answer is None or refusal(answer) else answer


class Program(Struct, frozen=True):
    """One program that reads a file of a target.

    `question` may use the answer of the program that it comes `after`. It returns None if the plan
    leaves nothing to ask, and raises NotAsked if the program cannot be queried.
    """

    name: str
    """The name that its users know: `transformers TrainingArguments`."""
    file: str
    """The name of the target's file that the program reads."""
    script: str
    """Dotted name of the module with the `VERBS`."""
    where: Callable[[Case], Where]
    """The environment for a case. Raises EnvironmentUnavailable."""
    question: Callable[[Case, Answers], Question | None]
    hear: Callable[[Case, Any], TranslatedAnswer]
    """Translates an answer that is not just a refusal."""
    after: str = ""
    seconds: float = 180.0
    """Seconds allowed for all questions of one environment."""
    places: Callable[[str, str], Mapping[str, Found]] = _found
    """Places of the keys in a text, from (text, path), for formats without a node tree."""
    unheard: Callable[[Case, Any], TranslatedAnswer | None] = turned_down
    """Translates an answer that holds nothing to compare; None for any other answer."""

    def heard(self, case: Case, answer: Any) -> TranslatedAnswer:
        """The whole answer, translated to the keys of the target's table."""
        return self.unheard(case, answer) or self.hear(case, answer)


def facts(pairs: Sequence[tuple[str, str, Any, Any]]) -> tuple[Fact, ...]:
    """Facts from (slot, key, expected, resolved)."""
    return tuple(Fact(*pair) for pair in pairs)
