"""The file that PEFT itself writes beside adapter weights."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import peft


def saved(question: Mapping[str, Any]) -> dict[str, Any]:
    """Save a `LoraConfig` with the arguments in `lora`, and return its adapter_config.json.

    Out: `version`; `document`, the file's content.
    """
    with tempfile.TemporaryDirectory() as folder:
        peft.LoraConfig(**question["lora"]).save_pretrained(folder)
        text = Path(folder, "adapter_config.json").read_text(encoding="utf-8")
    return {"version": peft.__version__, "document": json.loads(text)}
