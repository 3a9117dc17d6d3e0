"""A refusal points at what the spec says, and never at a line that says nothing of it."""

import tunec

SPEC = """\
tunec: 1
model: qwen2.5-1.5b
hardware: a100-80g-x1
method: qlora
objective: {grpo: {rewards: [think_format_reward]}}
data: {train: org/data, samples: 5000, sequence: 2048}
"""


def refused(text, name):
    found = tunec.compile(text, targets=[name]).diagnostics
    return [each for each in found if each.severity == "error"]


def test_a_decided_slot_is_told_where_it_follows_from():
    (error,) = refused(SPEC, "trl@0.20")
    assert "quantization.format" in error.message
    assert error.span.line == 4
    assert error.help.startswith("use trl 0.22.2 or later, ")


def test_a_pinned_slot_is_told_at_its_pin():
    text = SPEC.replace("objective: {grpo: {rewards: [think_format_reward]}}\n", "engine: fsdp\n")
    text = text.replace("x1", "x8").replace("qlora", "full")
    (error,) = refused(f"{text}pin: {{fsdp.version: 2}}\n", "huggingface@4.57")
    assert error.span.line == 7


def test_a_script_of_its_own_target_has_no_unknown_flags():
    text = SPEC.replace("objective: {grpo: {rewards: [think_format_reward]}}\n", "")
    text = (
        text.replace("qlora", "lora")
        .replace("org/data", "alpaca")
        .replace("qwen2.5-1.5b", "llama-3.2-1b")
    )
    result = tunec.compile(text, targets=["llama-cookbook"])
    assert result.ok
    assert [each.id for each in result.diagnostics if "flag" in each.id] == []
