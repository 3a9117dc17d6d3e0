"""Attention of Gemma 2 by a kernel that does not cap its scores."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_CAPPED: Final = re.compile(r"(^|[/_-])gemma-?2-\d", re.IGNORECASE)
"""Gemma 2; `gemma-2b` is the first Gemma, and Gemma 3 caps nothing."""
_REFUSES: Final = "transformers>=5.23"
_KEYS: Final = (
    ("model", "attn_implementation"),
    ("trainer", "attn_implementation"),
    ("trainer", "model_init_kwargs.attn_implementation"),
    ("llamafactory", "flash_attn"),
    ("axolotl", "attn_implementation"),
    ("axolotl", "sdp_attention"),
)


def _check(run: Run) -> Iterator[Finding]:
    path = run.model.path if run.model is not None else run.model_name or ""
    at = _torchs_own(run)
    if at is None or _CAPPED.search(path) is None:
        return
    is_refused = run.runs(_REFUSES) is True
    yield Finding(
        f"{path} caps its attention scores, and torch's sdpa does not",
        (at.label("refused" if is_refused else "scores are not capped"),),
        (
            "attn_logit_softcapping is 50, and it was trained with 50 * tanh(score / 50)",
            (
                "transformers before 5.23 leaves it out without a word"
                if not is_refused
                else "`sdpa` attention does not support `softcap`"
            ),
        ),
        "use eager, flex_attention, or flash attention 2 (flash-attn 2.6.3 and later)",
        severity="error" if is_refused else None,
        consequence="load" if is_refused else None,
    )


def _torchs_own(run: Run) -> Place | None:
    found = (each for kind, key in _KEYS for each in run.each(kind, key))
    return next((at for at in found if at.value == "sdpa" or _is_switch(at)), None)


def _is_switch(at: Place) -> bool:
    return at.path == "sdp_attention" and at.value is True


RULE = Rule(
    name="softcapping-left-out",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.44.2 to 5.15.1 models/gemma2/modeling_gemma2.py: _supports_sdpa, and "
            "integrations/sdpa_attention.py reads no softcap; 5.23.0: _supports_sdpa = False, "
            "`sdpa` attention does not support `softcap`"
        ),
        (
            "llamafactory 0.9.5 model/model_utils/attention.py: Gemma-2 should use soft-capping "
            "attention, while the SDPA attention does not support it"
        ),
    ),
    check=_check,
)
