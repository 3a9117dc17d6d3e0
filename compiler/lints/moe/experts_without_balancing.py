"""A router is trained without the loss that spreads tokens over experts."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import has_adapter
from tunec.compiler.lints.moe.experts import experts, family
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if not experts(run) or has_adapter(run):
        return
    for document in run.of("llamafactory"):
        method = document.get("finetuning_type")
        coefficient = document.get("moe_aux_loss_coef")
        if method is None or method.value != "full":
            continue
        if coefficient is None or coefficient.value in (0, None):
            yield Finding(
                f"the router of {family(run)} is trained without its balancing loss",
                ((coefficient or method).label("no moe_aux_loss_coef"),),
                ("LLaMA-Factory only asks the model for router logits where it is set",),
                "write moe_aux_loss_coef: 0.001",
            )


RULE = Rule(
    name="experts-without-balancing",
    severity="note",
    consequence="silent",
    consumers=("llamafactory",),
    sources=(
        (
            "LLaMA-Factory 0.9.5 model/model_utils/moe.py `configure_moe`: returns unless "
            "moe_aux_loss_coef is set"
        ),
        "arXiv 2101.03961 (Switch Transformers), section 2.2: the load balancing loss",
    ),
    check=_check,
)
