"""MiniCPM-V's own script, run up to where it has a model; nothing is loaded."""

import dataclasses
import os
import sys
import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from test_scripts import words  # noqa: E402

from tunec.targets.minicpm_v.schema import CLASSES, SOURCES  # noqa: E402
from tunec.targets.scripts.extract import definitions  # noqa: E402
from tunec.targets.scripts.sources import obtain  # noqa: E402

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("own_environment")


class Adapted(Exception):
    """An adapter is to be made."""


def _started(script: str, given: list[str]) -> str:
    """What `train` comes to by a command, up to its adapter."""

    def adapt(**_: Any) -> None:
        raise Adapted

    known = {each: getattr(typing, each) for each in ("Optional", "Union", "Literal", "Dict")}
    known |= {"dataclass": dataclasses.dataclass, "field": dataclasses.field, "LoraConfig": adapt}
    known |= {"List": list, "Tuple": tuple, "transformers": transformers, "torch": torch}
    unused = ("deepspeed", "logging", "DistributedType", "AutoTokenizer", "rank0_print")
    model = MagicMock()
    model.from_pretrained.return_value.llm.named_parameters.return_value = []
    known |= {"AutoModel": model, "os": SimpleNamespace(environ={})}
    known |= {each: MagicMock() for each in unused}
    train = definitions(script, ("train", *CLASSES), known)["train"]
    with patch("sys.argv", ["finetune.py", *given]):
        try:
            train()
        except Adapted:
            return "adapted"
        except ValueError as refusal:
            return str(refusal)
    return "trained"


@pytest.mark.real
def test_it_trains_its_language_model_or_an_adapter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """language-model-tuned-beside-lora"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(os.environ, "WORLD_SIZE", raising=False)
    script = obtain(SOURCES["0dbb566"]).read_text("utf-8")
    told = {
        kind: _started(script, words("language-model-tuned-beside-lora", kind, 0, "finetune.py"))
        for kind in ("bad", "good")
    }
    assert "cannot simultaneously adjust LLM parameters and apply LoRA" in told["bad"]
    assert told["good"] == "adapted"
