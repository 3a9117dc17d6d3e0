"""The config of a small language model, on which those of the tests of cards build."""

from typing import Any, Final

SMALL: Final[dict[str, Any]] = {
    "vocab_size": 1536,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
}
