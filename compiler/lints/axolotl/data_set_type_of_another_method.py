"""A data set of a type that the preference method of the file does not know."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.conditions import items
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PAIRS: Final = ("default", "argilla_chat", "icr", "intel", "prompt_pairs", "ultra")
_MARKS: Final = ("argilla", "argilla_chat", "intel", "prompt_pairs", "ultra")
_OF_DPO: Final[Mapping[str, tuple[str, ...]]] = {
    "chat_template": ("default", "argilla_chat"),
    "chatml": _PAIRS,
    "llama3": _PAIRS,
    "passthrough": ("default",),
    "user_defined": ("default",),
    "zephyr": ("nectar",),
}
_KNOWN: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    **dict.fromkeys(("dpo", "ipo", "simpo"), _OF_DPO),
    "kto": {"chatml": _MARKS, "llama3": _MARKS, "user_defined": ("default",)},
    "orpo": {"chat_template": ("load", "argilla")},
    "grpo": {},
    "gdpo": {},
}
"""Modules and their functions by method: axolotl 0.8.1 to 0.19.0 prompt_strategies/dpo, kto, orpo.
A type without a point is its module's `default`.
GRPO has none: what is not a module of the user's own goes to DPO's, which wants chosen and rejected
(KeyError, axolotl-ai-cloud/axolotl#3269, #2986)."""
_OF_SAMPLES: Final = frozenset(
    {
        *("alpaca", "alpaca_chat", "alpaca_instruct", "alpaca_w_system", "completion"),
        *("context_qa", "creative_acr", "input_output", "llama2_chat", "metharme", "orcamini"),
        *("pygmalion", "pretrain", "stepwise_supervised", "chat_template", "messages"),
    }
)
"""Modules of prompt_strategies for samples without a preference; a name that is neither theirs nor
another method's may be a module of the user's own."""


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        method = document.get("rl")
        known = _KNOWN.get(str(method.value).lower()) if method is not None else None
        for name, at in items(document, "datasets") if known is not None else ():
            if name == "type" and isinstance(at.value, str) and method and known is not None:
                yield from _of(at, method, known)


def _of(at: Place, method: Place, known: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    module, point, function = str(at.value).partition(".")
    functions = known.get(module)
    if functions is None and module not in _OF_SAMPLES | set(_OF_DPO):
        return
    if functions is not None and (function if point else "default") in functions:
        return
    taken = sorted(f"{name}.{each}" for name, held in known.items() for each in held)
    yield Finding(
        f"a data set for rl {method.value} cannot be of type {at.value}",
        (at.label("not found" if taken else "a type of pairs"), method.label("", primary=False)),
        (f"known: {', '.join(taken)}",) if taken else ("prompts have no chosen and rejected",),
        f"write {taken[0]}, with the fields of the data set"
        if taken
        else "name a function of your own (`module.function`) that makes the prompt",
    )


RULE = Rule(
    name="data-set-type-of-another-method",
    severity="warning",
    consequence="load",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 to 0.19.0 prompt_strategies/base.py `load` (None for what is not "
            "found), utils/data/rl.py: 0.19 Failed to load dataset transform function for type, "
            "before it None is called"
        ),
    ),
    check=_check,
)
