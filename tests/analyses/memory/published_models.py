"""Configs of models that published runs train and the catalogue has no card of."""

from collections.abc import Mapping
from typing import Any, Final

from tests.tables import table
from workload_builders import LLAMA_2_7B, LLAMA_32_1B, LLAMA_32_3B, MISTRAL_7B, QWEN_25_7B

from tunec.schemas.models.catalogue import card

_TABLES: Final = table(__file__)
_BUILT: Final[Mapping[str, dict[str, Any]]] = {
    "llama-2": LLAMA_2_7B,
    "llama-3.2-1b": LLAMA_32_1B,
    "llama-3.2-3b": LLAMA_32_3B,
    "mistral": MISTRAL_7B,
    "qwen2.5": QWEN_25_7B,
}


def _config(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with what it leaves to the one that it is like, sections of the config alike."""
    own = {key: value for key, value in row.items() if key != "like"}
    name = row.get("like")
    if name is None:
        return own
    base = _like(name)
    return base | {
        key: base[key] | value if isinstance(value, dict) else value for key, value in own.items()
    }


def _like(name: str) -> dict[str, Any]:
    if name.startswith("card "):
        return dict(card(name.removeprefix("card ")).config)
    return _BUILT.get(name) or _config(_TABLES["bases"][name])


GEMMA_7B, T0_3B, MT0_XXL, FLAN_T5_XXL, T5_11B = map(
    _like, ("gemma-7b", "t0-3b", "mt0-xxl", "flan-t5-xxl", "t5-11b")
)
CONFIGS: Final = {name: _config(row) for name, row in _TABLES["configs"].items()}
"""Each model's config.json on the Hugging Face hub."""
ALSO: Final = {"Qwen/Qwen2.5-Coder-1.5B-Instruct": "Qwen/Qwen2.5-1.5B-Instruct"}
"""Models with the config of another."""
