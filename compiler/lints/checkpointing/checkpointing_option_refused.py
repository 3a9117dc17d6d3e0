"""An option of gradient checkpointing that torch does not have."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import arguments_of

_HOLDERS: Final = (
    ("gradient_checkpointing_kwargs", "gradient_checkpointing"),
    ("activation_checkpointing_kwargs", "activation_checkpointing"),
)
"""The options and their switch; the second is the name from transformers 5.23 on."""
_KEYS: Final = (
    *("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug"),
    "early_stop",
)
_NOT_REENTRANT: Final = ("context_fn", "determinism_check", "debug", "early_stop")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        for holder, switch in _HOLDERS:
            held = document.get(holder)
            if held is not None and document.value(switch, True) is not False:
                yield from _of(document, holder, held, _known(run, document))


_SELECTIVE: Final = "trl>=1.15"
"""Releases whose trainer of samples takes `selective` out before torch is given the rest."""


def _known(run: Run, document: Document) -> tuple[str, ...]:
    is_trls = document.kind == "sft" and run.runs(_SELECTIVE) is not False
    return (*_KEYS, "selective") if is_trls else _KEYS


def _of(document: Document, holder: str, held: Place, known: tuple[str, ...]) -> Iterator[Finding]:
    if _is_no_mapping(held):
        yield _text(held)
    names = arguments_of(held) or {}
    for name in names:
        place = document.get(f"{holder}.{name}") or held
        is_odd = names.get("use_reentrant") is True and name in _NOT_REENTRANT
        if name in known and not is_odd:
            continue
        near = (
            [] if is_odd else nearest(name, _KEYS)[:1] or ["use_reentrant"] * ("reentrant" in name)
        )
        yield Finding(
            f"gradient checkpointing has no option `{name}`"
            + (" where it is reentrant" if is_odd else ""),
            (place.label("refused") if place is held else place.key_label("refused"),),
            ("torch refuses it in the forward pass of the first step",),
            did_you_mean(near) or "remove it",
            Fix((place.renamed(near[0]),), "unsafe") if near and place is not held else None,
        )


def _is_no_mapping(held: Place) -> bool:
    """Text that the trainer's arguments do not read as JSON: what does not begin with a brace."""
    text = held.value
    return isinstance(text, str) and bool(text) and not text.lstrip().startswith("{")


def _text(held: Place) -> Finding:
    return Finding(
        f"{held.path} is the text {held.value!r}, and no mapping",
        (held.label("taken as text"),),
        ("the arguments take it, and the first step hands its letters on as options",),
        'write {"use_reentrant": false}, in quotes on a command line',
    )


RULE = Rule(
    name="checkpointing-option-refused",
    severity="error",
    consequence="step",
    consumers=("transformers", "torch"),
    sources=(
        (
            "torch 2.13.0 utils/checkpoint.py `checkpoint`: Unexpected keyword arguments; "
            "transformers 4.40.2 to 5.23.0 modeling_utils.py `gradient_checkpointing_enable`: "
            "functools.partial(checkpoint, **gradient_checkpointing_kwargs)"
        ),
        "trl 1.15.0 and 1.16.0 trainer/sft_trainer.py: `selective` is a TRL-only key",
    ),
    check=_check,
)
