"""What LLaMA-Factory makes of words that are looked up when a model is loaded."""

import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import FOLDER, example, refusal  # noqa: E402
from test_libraries import llama  # noqa: E402
from test_scripts import asked  # noqa: E402

from tunec.compiler.consumers.queries import ConsumerFailed  # noqa: E402
from tunec.compiler.consumers.sets import choose  # noqa: E402

pytest.importorskip("peft")

_KINDS: Final = ("chatglm", "qwen2")
_LAYERS: Final = ("model.layers.0.q_proj", "visual.blocks.0.qkv", "visual.merger.mlp.0")
"""Of Qwen2-VL, of which the last is its projector's."""


def said(rule: str, kind: str = "bad", number: int = 0) -> dict[str, Any]:
    """The file of an example."""
    found: dict[str, Any] = yaml.safe_load(example(rule, kind, number).files["llamafactory.yaml"])
    return found


def whole(answer: Any) -> Any:
    """An answer, where nothing went wrong."""
    if isinstance(answer, ConsumerFailed):
        raise answer
    return answer


@cache
def answers() -> list[Any]:
    """Of the release that brings neither qwen3 nor qwen2.5: templates, then kernels."""
    words = [
        said("template-of-another-release")["template"],
        said("template-of-another-release", number=1)["template"],
        "qwen",
        said("turn-words-untrained")["template"],
        said("turn-words-untrained", "good")["template"],
    ]
    questions: list[dict[str, Any]] = [{"verb": "speak", "template": each} for each in words]
    questions += [{"verb": "fuse", "kind": each} for each in _KINDS]
    every = {"verb": "find", "kind": "qwen2_vl", "linear": _LAYERS}
    questions += [{**every, "freezes": each} for each in (True, False)]
    pins = choose("llamafactory", "0.9.1").requirements
    return asked(pins, "lints.consumers.llamafactory_looks", questions, FOLDER)


def test_a_template_is_looked_up_by_its_name() -> None:
    """template-of-another-release"""
    later, never, there, *_ = answers()
    assert refusal(later) == "Template qwen3 does not exist."
    assert refusal(never) == "Template qwen2.5 does not exist."
    assert refusal(there) == ""


def test_a_turn_ends_by_a_word_whose_row_no_adapter_moves() -> None:
    """turn-words-untrained: that the base has never seen it is its makers' word"""
    import peft

    marked, plain = map(whole, answers()[3:5])
    assert marked["ends"] == ["<|eot_id|>"]
    assert plain["ends"] == []
    assert said("turn-words-untrained")["lora_target"] == "all"
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear")
    trained = [
        name
        for name, each in peft.get_peft_model(llama(), config).named_parameters()
        if each.requires_grad
    ]
    assert trained
    assert not [name for name in trained if "embed" in name or "lm_head" in name]


def test_liger_has_kernels_for_some_models() -> None:
    """liger-not-for-the-model"""
    without, with_some = answers()[5:7]
    assert without == {"warned": "Current model does not support liger kernel.", "asked": []}
    assert with_some == {"warned": "", "asked": ["apply_liger_kernel_to_qwen2"]}


def test_all_is_every_layer_but_a_projector_s() -> None:
    """projector-not-adapted"""
    bad = said("projector-not-adapted")
    assert (bad["lora_target"], bad["freeze_vision_tower"]) == ("all", True)
    frozen, free = map(whole, answers()[7:9])
    assert frozen["found"] == ["q_proj"]
    assert free["found"] == ["q_proj", "qkv"]
