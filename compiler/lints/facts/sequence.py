"""How long a sample may be, by a trainer's own key or by the flag of a script."""

from typing import Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.place import Place

_FLAGS: Final = ("model_max_length", "block_size", "max_seq_length", "max_seq_len")
"""What scripts around transformers' Trainer call it: tatsu-lab/stanford_alpaca train.py, lm-sys/
FastChat 047b6e4 fastchat/train/train.py, haotian-liu/LLaVA llava/train/train.py; transformers
examples/pytorch run_clm.py; DeepSpeedExamples and Chinese-LLaMA-Alpaca."""


def longest(run: LintContext) -> Any:
    """Tokens of the longest sample; None where nobody says."""
    at = flag(run)
    return run.value("data.sequence", at.value if at is not None else None)


def flag(run: LintContext) -> Place | None:
    """Where a script's flag says it."""
    return run.said("hf", *_FLAGS)
