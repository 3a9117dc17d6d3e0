"""What ai-toolkit's own classes refuse, keep without asking, or replace, where lint says so."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import example  # noqa: E402
from test_scripts import asked  # noqa: E402

from tunec.targets.ai_toolkit.verify import REQUIREMENTS, SCRIPT, question  # noqa: E402

REFUSED = (
    (0, "gradient_accumulation and gradient_accumulation_steps are mutually exclusive"),
    (1, "split_model_over_gpus is only supported with flux models"),
    (2, "Cannot use both differential output preservation and blank prompt preservation"),
    (3, "save_format must be safetensors or diffusers, got ckpt"),
)


def answer(rule: str, kind: str, number: int = 0) -> dict[str, Any]:
    (text,) = example(rule, kind, number).files.values()
    process = yaml.safe_load(text)["config"]["process"][0]
    (told,) = asked(REQUIREMENTS, SCRIPT, [question(process)])
    return dict(told)


@pytest.mark.parametrize(("number", "says"), REFUSED)
def test_classes_refuse_settings_together(number: int, says: str) -> None:
    """ai-toolkit-config-refused"""
    assert says in answer("ai-toolkit-config-refused", "bad", number)["refused"]
    assert answer("ai-toolkit-config-refused", "good")["refused"] is None


def test_a_class_takes_any_key() -> None:
    """key-unread-by-ai-toolkit: recomputation is on unasked, and no attribute has the key."""
    told = answer("key-unread-by-ai-toolkit", "bad")
    assert told["refused"] is None
    assert "gradient_checkpoint" not in told["values"]["train"]
    assert "save_every" not in told["values"]["train"]
    assert told["values"]["save"]["save_every"] == 250


def test_a_low_rate_is_replaced() -> None:
    """rate-replaced-by-ai-toolkit"""
    assert answer("rate-replaced-by-ai-toolkit", "bad")["rate"] == 1.0
    assert answer("rate-replaced-by-ai-toolkit", "good")["rate"] == 1.0


def test_each_size_is_a_set() -> None:
    """size-listed-twice-in-ai-toolkit"""
    assert answer("size-listed-twice-in-ai-toolkit", "bad")["sets"] == 2
    assert answer("size-listed-twice-in-ai-toolkit", "good")["sets"] == 1
