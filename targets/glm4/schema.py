"""The JSON Schema of finetune.yaml, from the dataclasses of the scripts at each commit."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.targets.glm4.versions import REPOSITORY, STATES
from tunec.targets.scripts.facts import closed, fields
from tunec.targets.scripts.sources import Source, obtain

_BLOBS: Final = {
    "da2fe37": ("finetune_demo/finetune_vision.py", "c259d8a0fc825051f9a0c36f9861c8a0a558fdfb"),
    "f6ee34e": ("finetune_demo/finetune_vision.py", "b86c91ce400b5b9a30c915e6e112d0aaecf27d28"),
    "3f79b54": ("finetune/finetune_vision.py", "29334c90202d97b8c3cf8e5a170f9eab36b5011f"),
}
SOURCES: Final = {
    commit[:7]: Source(REPOSITORY, commit, *_BLOBS[commit[:7]]) for _, commit in STATES
}
"""The script from which each state's rows were read, by the commit's first seven digits."""


def documents() -> Iterator[tuple[str, Any]]:
    """The path below `schemas/json/` and the content of each schema.

    Raises EnvironmentUnavailable.
    """
    for short, source in SOURCES.items():
        yield f"glm4/{short}.json", document(source, obtain(source).read_text(encoding="utf-8"))


def document(source: Source, text: str) -> dict[str, Any]:
    """The schema of a state; blocks that other libraries define are plain objects in it."""
    properties = fields(text, "FinetuningConfig")
    data = fields(text, "DataConfig")
    inner = closed("", "", data)
    generation = {"type": "object", "properties": {"generation_config": {"type": "object"}}}
    blocks = {
        "data_config": {
            "type": "object",
            "properties": inner["properties"],
            "additionalProperties": False,
        },
        "training_args": {**generation, "required": ["generation_config"]},
        "peft_config": {"type": ["null", "object"]},
    }
    marks = {
        key: {"x-required": True} for key, value in properties.items() if "x-required" in value
    }
    merged = {
        key: {**blocks.get(key, value), **marks.get(key, {})} for key, value in properties.items()
    }
    return closed(f"finetune.yaml of {source.repository}", source.name, merged)
