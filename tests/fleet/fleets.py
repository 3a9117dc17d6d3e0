"""A small fleet for tests: three specs, four clusters, two targets, one override."""

from pathlib import Path

SPEC = """\
tunec: 1
model: {model}
method: {method}
data: {{train: train.jsonl, samples: 10000, sequence: {sequence}}}
hardware: a100-80g-x8
batch: {{global: 64}}
train: {{epochs: 1}}
"""
FLEET = """\
fleet: 1
specs: specs/*.yaml
clusters: [a100-80g-x8, a100-40g-x8, g5.12xlarge, t4-x1]
targets: [deepspeed, huggingface]
overrides:
  - clusters: [g5.*]
    set: {batch: {global: 128}}
"""


def write_fleet(folder: Path, text: str = FLEET) -> Path:
    specs = folder / "specs"
    specs.mkdir()
    kinds = (("small", "llama-3.2-1b", "lora", 1024), ("large", "llama-3.1-8b", "full", 2048))
    for name, model, method, sequence in (*kinds, ("q", "qwen2.5-7b", "qlora", 512)):
        spec = SPEC.format(model=model, method=method, sequence=sequence)
        (specs / f"{name}.yaml").write_text(spec, "utf-8")
    file = folder / "fleet.yaml"
    file.write_text(text, "utf-8")
    return file
