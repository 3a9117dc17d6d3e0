"""A policy: a team's own rules about plans, as data.

A rule applies to the plans that its `on` selects, and states what they must be. It refers to slots
(`zero.stage`) or to measures of the plan (`memory.headroom`).
"""

from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from tunec.schemas.shape import Shape

Scalar = bool | int | float | str
Amount = int | float | str
"""A number, or a quantity with its unit (`70GiB`, `5%`)."""

MEASURES: Final[dict[str, str]] = {
    "memory.required": "bytes",
    "memory.headroom": "bytes",
    "memory.headroom_share": "share",
    "host.required": "bytes",
    "time.step_seconds": "seconds",
    "time.tokens_per_second": "tokens a second",
    "cost.run": "dollars",
}
"""What a rule may refer to besides slots, with its unit."""


class Range(Shape):
    """A range of numbers, ends included; a missing end is open."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    from_: Amount | None = Field(default=None, alias="from")
    """The smallest value."""
    to: Amount | None = None
    """The largest value."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.from_ is None and self.to is None:
            raise ValueError("give `from`, `to`, or both")
        return self


class Other(Shape):
    """Anything but this value."""

    not_: Scalar | tuple[Scalar, ...] = Field(alias="not")
    """The value, or the list of values, that is excluded."""


Condition = Scalar | tuple[Scalar, ...] | Range | Other
"""A value, one of several values, a range, or anything but a value."""


def _names(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Names = Annotated[
    tuple[str, ...], BeforeValidator(_names, json_schema_input_type=str | tuple[str, ...])
]
"""One pattern or several, as the shell matches file names: `p4d.*`."""


class Where(Shape):
    """The plans that a rule applies to: those that match everything given here."""

    specs: Names = ()
    """Names of specs, as patterns."""
    clusters: Names = ()
    """Names of clusters, as patterns."""
    labels: dict[str, str] = {}
    """Labels of the cluster, values as patterns: `{cloud: aws}`."""
    plan: dict[str, Condition] = {}
    """Slots and measures of the plan: `{precision.compute: fp16}`."""


class PolicyRule(Shape):
    """One rule: its requirements and its reason."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)+$")]
    """What is wrong if the rule is broken, in lower case with hyphens:
    `offload-on-shared-disks`."""
    because: str
    """The reason, which is shown whenever the rule is broken."""
    severity: Literal["error", "warning", "note"] = "error"
    """An error keeps files from being written."""
    on: Where = Where()
    """The plans that the rule applies to; absent: all."""
    require: dict[str, Condition] = {}
    """The required values of slots and measures."""
    pins: Literal["forbidden", "need-a-reason"] | None = None
    """Whether a spec may not pin decisions, or must give a reason for each pin."""

    @model_validator(mode="after")
    def _asks(self) -> Self:
        if not self.require and self.pins is None:
            raise ValueError("give `require` or `pins`: the rule requires nothing")
        return self


class Policy(Shape):
    """The rules of a team."""

    policy: Literal[1]
    """Version of this language."""
    rules: tuple[PolicyRule, ...] = Field(min_length=1)
    """The rules, each with a name of its own."""
