"""A loss that balances experts, for a model that has none."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.moe.experts import experts, family
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SINCE: Final = "trl>=1.7"


def _check(run: Run) -> Iterator[Finding]:
    if run.model is None or experts(run) or run.model.architecture.kind == "diffusion":
        return
    for document in run.of("llamafactory"):
        at = document.get("moe_aux_loss_coef")
        if at is not None and at.value and not document.is_view:
            yield Finding(
                f"moe_aux_loss_coef does nothing for {family(run)}",
                (at.label("not read"),),
                ("the model has no experts to balance",),
                "remove it",
                severity="warning",
                consequence="silent",
            )
    for document in run.of(*TRL):
        at = document.get("router_aux_loss_coef")
        if at is not None and at.value and not document.is_view and run.runs(_SINCE) is not False:
            yield Finding(
                f"router_aux_loss_coef is refused for {family(run)}",
                (at.label("no router"),),
                ("there is no auxiliary loss to weight",),
                "remove it",
            )


RULE = Rule(
    name="balancing-of-no-experts",
    severity="error",
    consequence="init",
    consumers=("trl", "llamafactory"),
    sources=(
        (
            "trl 1.7.0 to 1.16.0 trainer/sft_trainer.py, grpo_trainer.py (dpo, kto: 1.8) "
            "`__init__`: is not a Mixture-of-Experts model; run with trl 1.16.0"
        ),
        "llamafactory 0.9.1 to 0.9.5 model/model_utils/moe.py `configure_moe`: by model_type",
    ),
    check=_check,
)
