"""What the rehearsals here are of."""

SPEC = {
    "tunec": 1,
    "name": "small",
    "model": "smollm2-360m",
    "method": "full",
    "data": {"train": "train.jsonl", "samples": 4000, "sequence": 512},
    "hardware": "a100-80g-x8",
    "batch": {"global": 96},
}
