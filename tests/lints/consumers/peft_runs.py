"""What the installed PEFT makes of an adapter_config.json, on a tiny model of Llama's names."""

import json
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from programs import text_of
from tests.lints.lint_pages import Example

_TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


def read(question: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of `config`: refused, or how many tensors are trained and what was warned of."""
    import peft
    import torch
    import transformers

    with warnings.catch_warnings(record=True) as told, tempfile.TemporaryDirectory() as folder:
        Path(folder, "adapter_config.json").write_text(json.dumps(question["config"]), "utf-8")
        warnings.simplefilter("always")
        try:
            config = peft.PeftConfig.from_pretrained(folder)
            with torch.device("meta"):
                base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**_TINY))
            model = peft.get_peft_model(base, config, low_cpu_mem_usage=True)
        except Exception as refusal:  # noqa: BLE001  the refusal is the answer
            return {"refused": "read", "text": f"{type(refusal).__name__}: {refusal}"}
    return {
        "values": {"trained": sum(each.requires_grad for each in model.parameters())},
        "warned": " | ".join(str(each.message) for each in told),
    }


def question(example: Example) -> Mapping[str, Any]:
    """The adapter of an example."""
    return {"verb": "read", "config": json.loads(text_of(example, "adapter_config.json"))}
