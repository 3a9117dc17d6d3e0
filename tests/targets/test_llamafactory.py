"""What LLaMA-Factory refuses of a plan when it loads the model."""

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
