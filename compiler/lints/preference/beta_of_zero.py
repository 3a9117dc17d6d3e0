"""A preference loss whose beta is zero or less: nothing is learnt, or the opposite."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.preference.asked import preferences, real
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = {
    "dpo": ("beta",),
    "kto": ("beta",),
    "llamafactory": ("pref_beta",),
    "axolotl": ("rl_beta", "dpo_beta"),
}
_METHODS: Final = ("dpo", "kto", "orpo", "simpo")


def _check(run: Run) -> Iterator[Finding]:
    for document, name in preferences(run):
        if name not in _METHODS:
            continue
        for key in _KEYS.get(document.kind, ()):
            at = document.get(key)
            beta = real(at.value) if at is not None else None
            if at is not None and beta is not None and beta <= 0:
                yield _finding(at, beta, name)


def _finding(at: Place, beta: float, name: str) -> Finding:
    is_zero = beta == 0
    return Finding(
        f"{at.path} {at.value}: {name.upper()} "
        + ("has no gradient" if is_zero else "prefers what was rejected"),
        (at.label("multiplies the difference of the pair"),),
        (
            "the loss is a function of beta times the difference of the log-ratios",
            *(("some readers take 0 for absent, and use their default",) if is_zero else ()),
        ),
        "write 0.1",
    )


RULE = Rule(
    name="beta-of-zero",
    severity="error",
    consequence="silent",
    consumers=("trl", "llamafactory", "axolotl"),
    sources=(
        (
            "trl 1.16.0 trainer/dpo_trainer.py `_compute_loss`: per_sequence_loss = "
            "-logsigmoid(self.beta * delta_score); trl 0.12.2 trainer/orpo_trainer.py, "
            "kto_trainer.py: the same product"
        ),
    ),
    check=_check,
)
