"""An optimizer that ZeRO does not take without a word of consent."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TESTED: Final = frozenset({"adam", "adamw", "fusedadam", "cpuadam", "adagrad", "muon"})
"""Muon since DeepSpeed builds one (0.17.6); before, it is no optimizer's name there."""
_OWN: Final = frozenset({"lion"})
_CONSENT: Final = "zero_allow_untested_optimizer"


def _check(run: Run) -> Iterator[Finding]:
    stage = run.effective("deepspeed", "zero_optimization.stage")
    consent = run.effective("deepspeed", _CONSENT)
    kind = run.said("deepspeed", "optimizer.type")
    if kind is None or stage.value not in (1, 2, 3) or consent.value is True:
        return
    if not isinstance(kind.value, str) or kind.value.lower() in _TESTED:
        return
    edit = kind.document.added(_CONSENT, True)
    if kind.value.lower() in _OWN:
        yield Finding(
            f"whether the script builds {kind.value} itself, which ZeRO refuses without {_CONSENT}",
            (kind.label("DeepSpeed's own is taken"),),
            ("DeepSpeed takes its own Lion, and none of another library",),
            f"write {_CONSENT}: true at the top",
            certain=False,
        )
        return
    yield Finding(
        f"ZeRO is not tested with {kind.value}, and {_CONSENT} is not true",
        (kind.label("refused"), *([stage.place.label("", primary=False)] if stage.place else [])),
        (),
        f"write {_CONSENT}: true at the top",
        Fix((edit,), "safe") if edit else None,
    )


RULE = Rule(
    name="untested-optimizer",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_do_optimizer_sanity_check`, "
            "runtime/zero/utils.py `ZERO_SUPPORTED_OPTIMIZERS`"
        ),
        "EleutherAI/gpt-neox#1166, deepspeedai/DeepSpeed#281",
    ),
    check=_check,
)
