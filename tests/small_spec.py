"""A small spec, for tests that change something of it."""

SPEC = """\
tunec: 1
model: llama-3.2-1b-instruct
method: lora
data: {train: train.jsonl, samples: 10000, sequence: 1024}
hardware: a100-80g-x8
batch: {global: 64}
train: {epochs: 1}
"""
