"""DPO mixes several losses with another number of weights."""

from collections.abc import Iterator

from tunec.compiler.lints.preference.asked import preferences
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document, name in preferences(run):
        prefix = "dpo_" if document.kind == "axolotl" else ""
        weights, losses = document.get(f"{prefix}loss_weights"), document.get(f"{prefix}loss_type")
        if prefix and run.runs("axolotl>=0.19") is False:
            continue
        if name != "dpo" or weights is None or not isinstance(weights.value, list):
            continue
        count = len(losses.value) if losses is not None and isinstance(losses.value, list) else 1
        if len(weights.value) != count:
            yield Finding(
                f"{len(weights.value)} loss weights for {count} losses",
                (
                    weights.label("one for each loss"),
                    *([losses.label("", primary=False)] if losses is not None else []),
                ),
                (),
                f"write {count} weights",
            )


RULE = Rule(
    name="loss-weights-differ",
    severity="error",
    consequence="parse",
    consumers=("trl>=1.3", "axolotl>=0.19"),
    sources=(
        (
            "trl 1.3.0 to 1.16.0 trainer/dpo_config.py `DPOConfig.__post_init__`: `loss_weights` "
            "must have the same length as `loss_type`"
        ),
        "axolotl 0.19.0 utils/schemas/validation.py: must be the same length",
    ),
    check=_check,
)
