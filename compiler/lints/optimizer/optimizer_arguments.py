"""Arguments for an optimizer that does not read them, or that cannot be read."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_UNREAD: Final = frozenset(
    {
        *("adafactor", "adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_8bit"),
        *("adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "lion_8bit", "lion_32bit"),
        *("paged_lion_8bit", "paged_lion_32bit"),
    }
)
"""Optimizers whose builder looks at no word of `optim_args`: transformers 4.40.2 to 5.23.0
trainer.py `get_optimizer_cls_and_kwargs`, 5.6.2 to 5.23.0 trainer_optimizer.py."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        place, optim = document.get("optim_args"), document.get("optim")
        if place is None or document.is_view or not isinstance(place.value, str):
            continue
        parts = place.value.replace(" ", "").split(",")
        if place.value and any(part.count("=") != 1 for part in parts):
            yield _unreadable(place)
        elif place.value and "optim" not in document.unknown and _is_unread(optim):
            yield _unread(place, optim)


def _is_unread(optim: Place | None) -> bool:
    return optim is None or optim.word in _UNREAD


def _unreadable(place: Place) -> Finding:
    return Finding(
        f"optim_args {place.value!r} is not read",
        (place.label("key=value,key=value"),),
        ("ValueError when the optimizer is built: not enough values to unpack",),
        "write key=value pairs with commas between them",
    )


def _unread(place: Place, optim: Place | None) -> Finding:
    name = "the default optimizer" if optim is None else str(optim.value)
    return Finding(
        f"optim_args {place.value!r} does nothing: {name} takes none",
        (
            place.label("not looked at"),
            *([optim.label("", primary=False)] if optim is not None else []),
        ),
        ("betas, epsilon and weight decay have keys of their own: adam_beta1, adam_epsilon, ...",),
        "remove it",
        Fix((place.removed(),), "safe"),
        severity="warning",
        consequence="silent",
    )


RULE = Rule(
    name="optimizer-arguments",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 5.23.0 trainer_optimizer.py `_parse_optim_args`: key, value = "
            "mapping.split('='); `_get_adamw_torch`, `_get_bitsandbytes_optimizer`, "
            "`_get_adafactor`"
        ),
        "transformers 4.40.2, 4.57.6 trainer.py `get_optimizer_cls_and_kwargs`",
    ),
    check=_check,
)
