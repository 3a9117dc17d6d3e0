"""A fleet: which specs are compiled for which clusters, and with which changes."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tunec.schemas.shape import Shape


def _list(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Patterns = Annotated[
    tuple[str, ...], BeforeValidator(_list, json_schema_input_type=str | tuple[str, ...])
]
"""One name or pattern, or several; `*`, `?` and `[...]` work as in the shell."""


def _included(value: object) -> object:
    return {"include": value} if isinstance(value, str | list | tuple) else value


class Specs(Shape):
    """Which spec files, relative to the fleet file."""

    include: Patterns
    """Files or patterns; `**` is any number of directories."""
    exclude: Patterns = ()
    """Files of these that are left out."""


class Clusters(Shape):
    """The clusters: those that are included and have the labels, except those that are excluded."""

    include: Patterns
    """Catalogue names, `DEVICE-xCOUNT`, patterns of catalogue names, or cluster files."""
    labels: dict[str, str] = {}
    """Labels that a cluster must have, values as patterns: `{cloud: aws}`."""
    exclude: Patterns = ()
    """Names or patterns of clusters that are left out."""


class Override(Shape):
    """Different settings for some specs on some clusters; a later override wins."""

    specs: Patterns = ("*",)
    """Names of specs."""
    clusters: Patterns = ("*",)
    """Names of clusters."""
    labels: dict[str, str] = {}
    """Labels of the clusters."""
    set: dict[str, Any]
    """The part of a spec to replace: `{batch: {global: 128}}`."""


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
    """The targets to compile for; absent: each spec's own targets."""
    overrides: tuple[Override, ...] = ()
    """Settings for some clusters only, applied to the spec in this order."""
    policies: tuple[str, ...] = Field(default=())
    """Policy files that every plan must meet, relative to the fleet file."""
