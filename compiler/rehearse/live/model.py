"""The shrunk model with random weights, its adapter, and generated tokens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers


def build(question: Mapping[str, Any], arguments: Any, quantization: Any = None) -> torch.nn.Module:
    """The model as a training script builds it from model_args.yaml and adapter_config.json.

    `quantization` is passed to `from_pretrained`; None means an unquantised base. It is called
    after the Trainer's arguments are made, so that with ZeRO 3 each rank creates only its shards.
    """
    torch.manual_seed(arguments.seed)
    content = dict(question["model_config"])
    config = transformers.CONFIG_MAPPING[content["model_type"]].from_dict(content)
    config.use_cache = False
    dtype = getattr(torch, question["dtype"])
    model: Any = transformers.AutoModelForCausalLM.from_config(
        config, dtype=dtype, attn_implementation=question["attention"]
    )
    if quantization is not None:
        model = _quantised(model, dtype, question["attention"], quantization)
    if Path("adapter_config.json").exists():
        import peft

        if arguments.gradient_checkpointing:
            model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.PeftConfig.from_pretrained("."))
    return torch.nn.Module.train(model)


def _quantised(model: Any, dtype: torch.dtype, attention: str, quantization: Any) -> Any:
    """Pass the model's weights through `from_pretrained`, which quantises them."""
    return type(model).from_pretrained(
        None,
        config=model.config,
        state_dict=model.state_dict(),
        dtype=dtype,
        attn_implementation=attention,
        quantization_config=quantization,
    )


def tokenizer(vocabulary: int) -> Any:
    """A tokenizer with a word for each token, the last being the end token: enough for TRL."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = {f"t{at}": at for at in range(vocabulary)}
    end = f"t{vocabulary - 1}"
    made = Tokenizer(WordLevel(words, unk_token=end))
    made.pre_tokenizer = WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=end, pad_token=end, unk_token=end
    )


class Tokens(torch.utils.data.Dataset):  # type: ignore[misc]  # torch is not typed
    """Samples of random tokens, the same on every rank."""

    def __init__(self, samples: int, sequence: int, vocabulary: int) -> None:
        source = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, vocabulary, (samples, sequence), generator=source)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[at], "labels": self.tokens[at]}
