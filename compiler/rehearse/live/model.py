"""The shrunk model with random weights, its adapter, and generated tokens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers


def build(question: Mapping[str, Any], arguments: Any) -> torch.nn.Module:
    """The model as a training script builds it from model_args.yaml and adapter_config.json.

    Called after the Trainer's arguments, so that with ZeRO 3 each rank makes only its shards.
    """
    torch.manual_seed(arguments.seed)
    content = dict(question["model_config"])
    config = transformers.CONFIG_MAPPING[content["model_type"]].from_dict(content)
    config.use_cache = False
    model: Any = transformers.AutoModelForCausalLM.from_config(
        config,
        dtype=getattr(torch, question["dtype"]),
        attn_implementation=question["attention"],
    )
    if Path("adapter_config.json").exists():
        import peft

        if arguments.gradient_checkpointing:
            model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.PeftConfig.from_pretrained("."))
    return torch.nn.Module.train(model)


class Tokens(torch.utils.data.Dataset):  # type: ignore[misc]  # torch is not typed
    """Samples of random tokens, the same in every rank."""

    def __init__(self, samples: int, sequence: int, vocabulary: int) -> None:
        source = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, vocabulary, (samples, sequence), generator=source)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[at], "labels": self.tokens[at]}
