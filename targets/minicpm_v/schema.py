"""The JSON Schema of the script's own flags, from its dataclasses at each commit."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.targets.minicpm_v.versions import COMMITS, REPOSITORY
from tunec.targets.scripts.facts import closed, fields
from tunec.targets.scripts.sources import Source, obtain

CLASSES: Final = ("ModelArguments", "DataArguments", "TrainingArguments", "LoraArguments")
_BLOBS: Final = {
    "cd64150": "0c596d7b2385d6ea29c674119b2d1df4c3bd9e29",
    "2c0e7ff": "bc1861153c0c643b86c2241bde180242eb198504",
    "0dbb566": "bc1861153c0c643b86c2241bde180242eb198504",
}
SOURCES: Final = {
    commit[:7]: Source(REPOSITORY, commit, "finetune/finetune.py", _BLOBS[commit[:7]])
    for commit in COMMITS
}
"""The script that the rows of each state were read from, by the commit's first seven digits."""


def documents() -> Iterator[tuple[str, Any]]:
    """Each schema by its path below `schemas/json/`. Raises EnvironmentUnavailable."""
    for short, source in SOURCES.items():
        yield f"minicpm-v/{short}.json", document(source, obtain(source).read_text("utf-8"))


def document(source: Source, text: str) -> dict[str, Any]:
    """The schema of the flags that the script adds to those of transformers."""
    found: dict[str, Any] = {}
    for name in CLASSES:
        found |= fields(text, name)
    return closed(f"own flags of {source.repository} {source.path}", source.name, found)
