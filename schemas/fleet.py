"""A fleet: which specs are compiled for which clusters, with what changed where."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tunec.schemas.shape import Shape


def _list(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Patterns = Annotated[
    tuple[str, ...],
    BeforeValidator(_list, json_schema_input_type=str | tuple[str, ...]),
]
"""One name or pattern, or several; `*`, `?` and `[...]` as the shell has them."""


def _included(value: object) -> object:
    return {"include": value} if isinstance(value, str | list | tuple) else value


class Specs(Shape):
    """Which spec files, relative to the fleet file."""

    include: Patterns
    """Files or patterns; `**` is any number of directories."""
    exclude: Patterns = ()
    """What of these is left out."""


class Clusters(Shape):
    """Which clusters: what is included and has the labels, less what is excluded."""

    include: Patterns
    """Catalogue names, `DEVICE-xCOUNT`, patterns of catalogue names, or cluster files."""
    labels: dict[str, str] = {}
    """Labels that a cluster must have, values as patterns: `{cloud: aws}`."""
    exclude: Patterns = ()
    """Names or patterns of what is left out."""


class Override(Shape):
    """What is set differently for some specs on some clusters; a later one is stronger."""

    specs: Patterns = ("*",)
    """Names of specs."""
    clusters: Patterns = ("*",)
    """Names of clusters."""
    labels: dict[str, str] = {}
    """Labels of the clusters meant."""
    set: dict[str, Any]
    """A part of a spec that holds instead: `{batch: {global: 128}}`."""


class Fleet(Shape):
    """Specs x clusters x targets."""

    fleet: Literal[1]
    """Version of this language."""
    specs: Annotated[
        Specs, BeforeValidator(_included, json_schema_input_type=str | tuple[str, ...] | Specs)
    ]
    """The specs: files, patterns, or both with exclusions."""
    clusters: Annotated[
        Clusters,
        BeforeValidator(_included, json_schema_input_type=str | tuple[str, ...] | Clusters),
    ]
    """The clusters: names, patterns, files, or these with labels and exclusions."""
    targets: tuple[str, ...] = ()
    """What to compile to; absent: each spec's own targets."""
    overrides: tuple[Override, ...] = ()
    """What holds on some clusters only, in the order in which it is laid over the spec."""
    policies: tuple[str, ...] = Field(default=())
    """Policy files that every plan is held to, relative to the fleet file."""
