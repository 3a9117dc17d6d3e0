"""What a repository settles for `tunec lint`: `tunec.toml`, or `[tool.tunec]` of pyproject.toml."""

from typing import Literal

from tunec.schemas.shape import Shape

Level = Literal["error", "warn", "note", "off"]
"""What a finding of a rule is taken for; `off`: it is not reported."""


class LintSettings(Shape):
    """Settings of `tunec lint`; what the command line says wins over each of them."""

    exclude: tuple[str, ...] = ()
    """Files and folders that are not read when a folder around them is linted: patterns from this
    file's folder on, such as `old/**`; one without a slash matches at any depth."""
    rules: dict[str, Level] = {}
    """The level of a rule, by its name."""
    paths: dict[str, dict[str, Level]] = {}
    """The level of a rule in the files that a pattern matches; of several, the last one holds."""
    software: dict[str, str] = {}
    """The versions that run, or their bounds: `{transformers = "4.57", trl = ">=0.12,<0.20"}`."""
    hardware: str | None = None
    """The hardware of the runs, as in a spec: a catalogue name, or a file in the project."""
    baseline: str | None = None
    """The file of findings that are accepted, from this file's folder on."""
