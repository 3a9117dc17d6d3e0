"""A policy: a team's own rules about plans, as data.

A rule holds for the plans that its `on` selects, and says what they must be. What it speaks of is a
slot (`zero.stage`) or a measure of the plan (`memory.headroom`).
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
"""What a rule may speak of besides slots, with its unit."""


class Range(Shape):
    """A span of numbers, ends included; an end that is not given is open."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    from_: Amount | None = Field(default=None, alias="from")
    """The least."""
    to: Amount | None = None
    """The greatest."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.from_ is None and self.to is None:
            raise ValueError("give `from`, `to`, or both")
        return self


class Other(Shape):
    """Anything but this."""

    not_: Scalar | tuple[Scalar, ...] = Field(alias="not")
    """The value, or the list of values, that is not meant."""


Condition = Scalar | tuple[Scalar, ...] | Range | Other
"""A value, one of several, a range, or anything but."""


def _names(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_names, json_schema_input_type=str | tuple[str, ...]),
]
"""One pattern or several, as the shell matches file names: `p4d.*`."""


class Where(Shape):
    """Which plans a rule is about: all that match everything given here."""

    specs: Names = ()
    """Names of specs, as patterns."""
    clusters: Names = ()
    """Names of clusters, as patterns."""
    labels: dict[str, str] = {}
    """Labels of the cluster, values as patterns: `{cloud: aws}`."""
    plan: dict[str, Condition] = {}
    """Slots and measures of the plan: `{precision.compute: fp16}`."""


class PolicyRule(Shape):
    """One rule, with what it asks for and why."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)+$")]
    """What is wrong where it is broken, in lower case with hyphens: `offload-on-shared-disks`."""
    because: str
    """The reason, for whoever meets it."""
    severity: Literal["error", "warning", "note"] = "error"
    """An error keeps files from being written."""
    on: Where = Where()
    """Which plans it speaks of; absent: all."""
    require: dict[str, Condition] = {}
    """What slots and measures must be."""
    pins: Literal["forbidden", "need-a-reason"] | None = None
    """Whether a spec may pin decisions, or must say why."""

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
    """Each with a name of its own."""
