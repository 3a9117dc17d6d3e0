"""What LLaMA-Factory ends in where a plan needs it, by release."""

import pytest

import tunec

SPEC = """\
tunec: 1
model: qwen3-8b
method: {{{method}: {{rank: 8, dora: {dora}}}}}
data: {{train: t.jsonl, samples: 1000, sequence: 1024}}
hardware: a100-80g-x1
"""


@pytest.mark.parametrize("release", ["0.9.3", "0.9.4", "0.9.5"])
def test_dora_does_not_go_with_a_quantised_base(release):
    """On a CPU 0.9.5 ended in `DoRA is not compatible with PTQ-quantized models`."""
    target = f"llamafactory@{release}"
    for method, dora, refused in (
        ("qlora", "true", True),
        ("int8_lora", "true", True),
        ("qlora", "false", False),
        ("lora", "true", False),
    ):
        result = tunec.compile(SPEC.format(method=method, dora=dora), targets=[target])
        faults = [each.message for each in result.diagnostics if each.severity == "error"]
        assert [each for each in faults if "it refuses DoRA" in each] == faults
        assert bool(faults) is refused


@pytest.mark.parametrize(
    ("release", "engine", "refused"),
    [
        *((release, "deepspeed", release == "0.9.4") for release in ("0.9.3", "0.9.4", "0.9.5")),
        ("0.9.4", "ddp", False),
    ],
)
def test_a_reference_beside_deepspeed_is_refused_in_one_release(release, engine, refused):
    """On a CPU: unsupported operand type(s) for *: 'Accelerator' and 'int'."""
    words = (
        SPEC.replace("{{{method}: {{rank: 8, dora: {dora}}}}}", "full")
        .replace("8b", "0.6b")
        .replace("-x1", "-x2")
    )
    text = f"{words.format()}objective: dpo\nengine: {engine}\n"
    result = tunec.compile(text, targets=[f"llamafactory@{release}"])
    faults = [each.message for each in result.diagnostics if each.severity == "error"]
    assert [each for each in faults if "the batch of the reference" in each] == faults
    assert bool(faults) is refused
