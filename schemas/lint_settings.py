"""Settings of `tunec lint` for a repository: `tunec.toml`, or `[tool.tunec]` of pyproject.toml."""

from typing import Literal

from tunec.schemas.shape import Shape

Level = Literal["error", "warn", "note", "off"]
"""The level of a rule's findings; `off`: they are not reported."""


class LintSettings(Shape):
    """Settings of `tunec lint`; the command line overrules each of them."""

    exclude: tuple[str, ...] = ()
    """Files and folders to skip when a folder around them is linted: patterns relative to this
    file's folder, such as `old/**`; a pattern without a slash matches at any depth."""
    rules: dict[str, Level] = {}
    """The level of a rule, by its name."""
    paths: dict[str, dict[str, Level]] = {}
    """The level of a rule in files that match a pattern; the last match counts."""
    software: dict[str, str] = {}
    """The installed versions, or their bounds: `{transformers = "4.57", trl = ">=0.12,<0.20"}`."""
    hardware: str | None = None
    """The hardware of the runs, as in a spec: a catalogue name, or a file in the project."""
    baseline: str | None = None
    """The file of accepted findings, relative to this file's folder."""
