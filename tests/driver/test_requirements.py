"""What a target needs holds where the spec is silent, and is an error where it says otherwise."""

import pytest

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_text
from tunec.targets.registry import TARGETS

SPEC = """\
tunec: 1
model: llama-3.2-1b
method: lora
data: {train: train.jsonl, samples: 1000, sequence: 1024}
hardware: a100-80g-x8
train: {epochs: 1}
"""


def planned(target: str, more: str = ""):
    return plan(load_text(SPEC + more), [TARGETS.resolve(target)])


def test_a_requirement_decides_what_is_open():
    found = planned("deepspeed")
    assert found.ok
    assert found.plan["parallel.engine"] == "deepspeed"


@pytest.mark.parametrize(
    ("target", "more", "said"),
    [
        (
            "deepspeed",
            "engine: ddp\n",
            "needs parallel.engine deepspeed, and the spec asks for ddp",
        ),
        ("simpletuner", "launcher: torchrun\n", "needs launch.launcher accelerate"),
        ("minicpm-v", "engine: none\n", "needs parallel.engine deepspeed"),
    ],
)
def test_a_field_that_says_otherwise_is_an_error(target, more, said):
    (found,) = [each for each in planned(target, more).diagnostics if each.id == "E0903"]
    assert said in found.message
    assert found.labels[0].span.line == 7


def test_a_field_that_says_the_same_is_fine():
    assert planned("deepspeed", "engine: deepspeed\n").ok
