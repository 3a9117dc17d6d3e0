"""A DPO loss that the release does not know."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NOW: Final = frozenset(
    {
        *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard"),
        *("aot", "aot_unpaired", "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm"),
    }
)
_BEFORE: Final = _NOW - {"sigmoid_norm", "aot_unpaired", "sft"} | {"aot_pair", "kto_pair"}
_RENAMED: Final = {"aot_pair": "aot", "kto_pair": "apo_zero", "dpo": "sigmoid", "orpo": "sigmoid"}


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("dpo"):
        at = document.get("loss_type")
        if document.is_view or at is None:
            continue
        said = at.value if isinstance(at.value, list) else [at.value]
        known = _NOW if run.runs("trl>=1") else _NOW | _BEFORE
        lost = [each for each in said if isinstance(each, str) and each not in known]
        if lost:
            near = [
                *nearest(lost[0], known)[:1],
                *([_RENAMED[lost[0]]] if lost[0] in _RENAMED else []),
            ]
            yield Finding(
                f"{quoted(lost, 'and')} is no loss of DPO in this release",
                (at.label("Unknown loss type"),),
                ("the configuration is taken, and the first step fails",),
                f"did you mean {quoted(near[-1:])}?" if near else "write sigmoid",
            )


RULE = Rule(
    name="dpo-loss-unknown",
    severity="error",
    consequence="step",
    consumers=("trl",),
    sources=(
        (
            "trl 1.16.0 trainer/dpo_trainer.py `_compute_loss`: Unknown loss type. Should be one "
            "of ...; trl 0.10.1 to 0.17.0 dpo_config.py `loss_type`; run: DPOConfig takes "
            "kto_pair and aot_pair"
        ),
    ),
    check=_check,
)
