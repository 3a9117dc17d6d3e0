"""Models that cannot do what the trainer asks of them."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import is_checked, notes, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.rule import Finding, keys, rule

_LACKING: Final = (
    ("nemotron_h", re.compile(r"(?i)nemotron-(?:3(?!-8b)|h)\b"), "transformers>=5.3,<5.7"),
    ("jetmoe", re.compile(r"(?i)\bjetmoe\b"), ""),
    ("cpmant", re.compile(r"(?i)\bcpm-ant\b"), ""),
    ("gpt_neox_japanese", re.compile(r"(?i)gpt-neox-japanese"), ""),
)
"""Types of causal models, their names, and the releases in which no class of theirs sets
`supports_gradient_checkpointing`: transformers 4.40.2 to 5.23.0 models/TYPE/modeling_TYPE.py.
Nemotron 3 8B of 2023 is of another type."""


@rule("error", "init", consumers=("transformers",), reads=keys("trainer", "gradient_checkpointing"))
def model_without_checkpointing(run: LintContext) -> Iterator[Finding]:
    """Gradient checkpointing is on for a model whose class does not have it."""
    at = run.said("trainer", "gradient_checkpointing")
    if at is None or at.value is not True:
        return
    card = run.model.card if run.model is not None else None
    mine = None if card is None else card.config.get("model_type")
    name = run.model_name or ""
    for kind, names, releases in _LACKING:
        is_it = mine == kind if mine is not None else names.search(name) is not None
        if is_it and is_checked(run, releases):
            late = f" before transformers {releases.rpartition('<')[2]}" if releases else ""
            yield Finding(
                f"{name or kind} has no gradient checkpointing{late}",
                (at.label("refused"),),
                notes(run, "ValueError before the first step: does not support it", releases),
                "remove gradient_checkpointing" + (", or use a later release" if late else ""),
                severity=severity(run, releases),
            )
