"""What a run needs besides its spec: a tiny model with its tokenizer, and a few samples."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

Row = Mapping[str, Any]

WORDS: Final = (
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "we",
    "look",
)
_SPECIAL: Final = ("<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>")
_CHAT: Final = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
VOCABULARY: Final = 512
LONGEST: Final = 256
"""Tokens that the tiny model has positions for."""


def text_config() -> Any:
    """The two layers of a language model, small enough for a CPU."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LONGEST,
        dtype="bfloat16",
    )


def write_model(folder: Path, seed: int = 0) -> None:
    """A Llama of two layers, by the seed other weights, with its tokenizer and chat template."""
    import torch
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    LlamaForCausalLM(text_config()).to(torch.bfloat16).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    _name_for_all(folder / "tokenizer_config.json")


def _name_for_all(file: Path) -> None:
    """Call the tokenizer's class as every release knows it; transformers 5 has a new name."""
    said = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**said, "tokenizer_class": "PreTrainedTokenizerFast"}))


def tokenizer() -> Any:
    """Bytes and a few words, with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bytes_of_text = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = Tokenizer(models.BPE())
    words.pre_tokenizer, words.decoder = bytes_of_text, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(_SPECIAL),
        special_tokens=list(_SPECIAL),
        initial_alphabet=bytes_of_text.alphabet(),
        show_progress=False,
    )
    words.train_from_iterator([" ".join(WORDS)] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",  # noqa: S106  no password
        bos_token="<s>",  # noqa: S106  no password
        eos_token="</s>",  # noqa: S106  no password
        model_max_length=LONGEST,
        chat_template=_CHAT,
    )


def _sentence(drawn: random.Random) -> str:
    return " ".join(drawn.choices(WORDS, k=drawn.randint(4, 24)))


def _messages(drawn: random.Random) -> Row:
    return {"messages": [message("user", drawn), message("assistant", drawn)]}


def message(role: str, drawn: random.Random) -> Row:
    """A sentence that somebody says."""
    return {"role": role, "content": _sentence(drawn)}


def write_lengths(file: Path, samples: Path) -> None:
    """Tokens of each text in a file of samples, its end counted, in their order."""
    words = tokenizer()
    texts = [json.loads(line)["text"] for line in samples.read_text("utf-8").splitlines()]
    lengths = [len(words(each)["input_ids"]) + 1 for each in texts]
    file.write_text(json.dumps(lengths), encoding="utf-8")


FORMS: Final[Mapping[str, Callable[[random.Random], Row]]] = {
    "text": lambda drawn: {"text": _sentence(drawn)},
    "messages": _messages,
    "questions": lambda drawn: {"prompt": [message("user", drawn)]},
    "completion": lambda drawn: {"prompt": _sentence(drawn), "completion": _sentence(drawn)},
    "pairs": lambda drawn: {
        "prompt": _sentence(drawn),
        "chosen": _sentence(drawn),
        "rejected": _sentence(drawn),
    },
}
"""How a sample is written, by the name of the form."""


def write_samples(file: Path, form: str, count: int, seed: int = 0) -> None:
    """So many samples of a form, one JSON object a line."""
    file.write_text("".join(_lines(form, count, seed)), encoding="utf-8")


def _lines(form: str, count: int, seed: int) -> Iterator[str]:
    drawn = random.Random(seed)  # noqa: S311  texts, not secrets
    for _ in range(count):
        yield json.dumps(FORMS[form](drawn)) + "\n"
