"""Models of today that no card can be made of yet, by name, each with its reason."""

from collections.abc import Mapping
from typing import Final

UNPLANNED: Final[Mapping[str, str]] = {
    "openai/whisper-": "its encoder reads sound and feeds a decoder, and a card counts one "
    "length alone",
    "distil-whisper/": "its encoder reads sound and feeds a decoder, and a card counts one "
    "length alone",
    "google/gemma-3n-": "its vision tower is a class of timm, and its passes over a base "
    "packed in 4 bits do not run",
    "moonshotai/Kimi-K2-": "its class is code of its own (`kimi_k2`), and its weights are "
    "published in FP8 or INT4, over which no method of tunec trains",
    "moonshotai/Kimi-VL-": "its class is code of its own (`kimi_vl`), which transformers 5.23.0 "
    "does not have",
    "microsoft/Phi-4-multimodal-": "its config.json names code of its own (`phi4mm`), "
    "which transformers 5.23.0 does not have",
}
"""What names begin with, and why (transformers 5.23.0, `models/auto/configuration_auto.py`, and the
rows of `benchmarks/card_sweep.jsonl`)."""


def why_unplanned(name: str) -> str | None:
    """Why a model of this name cannot be planned; None: nothing is known of it."""
    low = name.lower()
    return next((why for start, why in UNPLANNED.items() if low.startswith(start.lower())), None)
