"""A word for the kernel of attention that transformers does not have."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KINDS: Final = ("model", *TRL)
_KEYS: Final = ("attn_implementation", "model_init_kwargs.attn_implementation")
_FLASH: Final = "flash_attention_2"
_FLEX: Final = "flex_attention"
_MEANT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("flash_attention", "flash_attn", "flash-attention", "flash", "flash_attn_2"),
            *("flash_attention2", "flash-attention-2", "flash_attention_v2", "flash2", "fa2"),
            "flashattention2",
        ),
        _FLASH,
    ),
    **dict.fromkeys(("flash_attn_3", "flash_attention3", "fa3"), "flash_attention_3"),
    **dict.fromkeys(("flex", "flex_attn", "flexattention"), "flex_attention"),
    **dict.fromkeys(("sdp", "spda", "torch_sdpa", "sdpa_attention"), "sdpa"),
    **dict.fromkeys(("vanilla", "none", "default"), "eager"),
    "xformers": "sdpa",
    "true": _FLASH,
}
"""What is written, and what is meant; another word may be one that somebody registered."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of(*_KINDS):
        for key in _KEYS:
            at = document.get(key)
            meant = _MEANT.get(str(at.value).lower()) if at is not None else None
            if at is not None and meant is not None and at.value is not None:
                yield _finding(at, meant)
    if run.runs("torch<2.5") is True:
        yield from _flex(run)


def _flex(run: Run) -> Iterator[Finding]:
    """FlexAttention, which torch has from 2.5 on."""
    for place in (at for kind in (*_KINDS, "hf") for key in _KEYS for at in run.each(kind, key)):
        if place.value == _FLEX:
            yield Finding(
                f"torch {run.release('torch').version} has no {_FLEX}",
                (place.label("needs torch 2.5"),),
                ("transformers asks for the release of torch when the model is loaded",),
                "write sdpa, or use torch 2.5 or later",
                Fix((place.replaced("sdpa"),), "safe"),
            )


def _finding(at: Place, meant: str) -> Finding:
    return Finding(
        f"{at.path} cannot be {at.value}",
        (at.label("not known"),),
        ("known: eager, sdpa, flash_attention_2, flash_attention_3, flex_attention",),
        f"write {meant}",
        Fix((at.replaced(meant),), "unsafe"),
    )


RULE = Rule(
    name="attention-word-unknown",
    severity="error",
    consequence="load",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 modeling_utils.py `get_correct_attn_implementation` "
            "(4.40: `_autoset_attn_implementation`): Specified `attn_implementation` is not "
            "supported; run with 5.23.0"
        ),
        (
            "transformers 4.51.3 to 5.15.1 utils/import_utils.py `is_torch_flex_attn_available`: "
            "torch 2.5.0"
        ),
    ),
    check=_check,
)
