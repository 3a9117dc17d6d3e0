"""Samples as llama-cookbook asks for them: a function that gives the tokens of each."""

import json
from pathlib import Path


def get_custom_dataset(config, tokenizer, split):
    """The texts of the file beside this one, each with its end; there is no second split."""
    del config
    lines = (Path(__file__).parent / "train.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines if split == "train"]
    return [_sample([*tokenizer.encode(each), tokenizer.eos_token_id]) for each in texts]


def _sample(tokens):
    return {"input_ids": tokens, "attention_mask": [1] * len(tokens), "labels": tokens}
