"""LLaMA-Factory's own reading of its YAML, and what it makes of a tiny model.

Runs inside an environment that holds one release of llamafactory. Verb: `read`.
"""

import os
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch


def read(question: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of `config` with `files` beside it: refused, or the values of all classes."""
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    import torch
    from llamafactory.hparams import parser

    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        patch.dict(os.environ, {"ALLOW_EXTRA_ARGS": "0", "FORCE_TORCHRUN": "1"}),
        patch.object(torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        patch.object(parser, "is_torch_bf16_gpu_available", lambda: True),
    ):
        for name, text in question.get("files", {}).items():
            Path(folder, name).write_text(text, encoding="utf-8")
        try:
            parts = parser.get_train_args({"use_cpu": True, **question["config"]})
        except BaseException as refusal:  # noqa: BLE001  the refusal is the answer
            return {"refused": "read", "text": f"{type(refusal).__name__}: {refusal}"}
    return {"values": {key: _plain(value) for part in parts for key, value in vars(part).items()}}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value.value if hasattr(value, "value") else value
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else str(value)


VERBS = {"read": read}
