"""Results of the tools: each has a type, which clients get as a JSON Schema."""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """A part of a result; later releases may add fields."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Place(Shape):
    """The place of a fault."""

    file: str | None = None
    line: int | None = None
    column: int | None = None
    path: str = Field("", description="the key's dotted path in its file")
    text: str = ""


class Fault(Shape):
    """One diagnostic."""

    id: str = Field(
        description="a code such as E0701, or the name of a rule; `explain` has its page"
    )
    severity: Literal["error", "warning", "note"]
    message: str
    labels: list[Place] = []
    notes: list[str] = []
    help: str | None = Field(None, description="the smallest change that fixes it")


class Result(Shape):
    """The result of any tool."""

    ok: bool = Field(description="whether the command found nothing wrong")
    diagnostics: list[Fault] = []
    notes: str = Field("", description="what the command says beside its result")


class Plan(Result):
    """Every decision, and the resulting memory and time."""

    plan: dict[str, Any] | None = Field(None, description="each slot's value; none: nothing fits")
    memory: dict[str, Any] | None = Field(None, description="bytes of a device and of a host")
    time: dict[str, Any] | None = Field(None, description="seconds a step, tokens a second, terms")


class Explanation(Result):
    """Why a slot has its value, or what a diagnostic means."""

    slot: str | None = None
    value: Any = None
    definitions: list[dict[str, Any]] = Field([], description="who said it, why, and what it beat")
    considered: list[dict[str, Any]] = Field([], description="layouts that the search looked at")
    page: str | None = Field(None, description="of a diagnostic: what it means and how to fix it")


class Lint(Result):
    """Faults in configs."""


class Choice(Result):
    """A spec on many clusters."""

    by: str = ""
    results: list[dict[str, Any]] = Field([], description="the options of each, best first")


class File(Shape):
    """A file that was made."""

    target: str
    file: str
    text: str


class Translation(Result):
    """Configs for another trainer, or as a spec."""

    artifacts: list[File] = []
    spec: str | None = Field(None, description="the spec, for the target `spec`")


class Files(Result):
    """The files of the targets."""

    artifacts: list[File] = []


class Verification(Result):
    """How real programs read the files."""

    checks: list[dict[str, Any]] = []
    decisions: list[dict[str, Any]] = []


class Difference(Result):
    """The effect of a change."""

    kind: str | None = Field(None, alias="class", description="breaking, performance, cosmetic")
    specs: list[dict[str, Any]] = []
    added: list[str] = []
    removed: list[str] = []
    unreadable: list[str] = []

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


MOST_CONSIDERED: Final = 12
"""Layouts that an explanation lists; all of them would fill much of a model's context."""
