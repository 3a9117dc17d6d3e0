"""As many weights as rewards."""

from collections.abc import Iterator

from tunec.compiler.lints.preference.asked import GROUPED, preferences, trl
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document, method in preferences(run):
        weights, rewards = trl(document, "reward_weights"), trl(document, "reward_funcs")
        if method not in GROUPED or weights is None or rewards is None:
            continue
        count, wanted = _count(weights.value), _count(rewards.value)
        model = trl(document, "reward_model_name_or_path")
        wanted = wanted + 1 if wanted is not None and model is not None else wanted
        if count is not None and wanted is not None and count != wanted:
            yield Finding(
                f"{count} reward_weights for {wanted} rewards",
                (weights.label("one for each"), rewards.label("", primary=False)),
                ("TRL's script adds the reward model after the functions",) if model else (),
                f"write {wanted} numbers",
            )


def _count(value: object) -> int | None:
    if isinstance(value, list):
        return len(value)
    return 1 if isinstance(value, str | int | float) and not isinstance(value, bool) else None


RULE = Rule(
    name="reward-weights-miscounted",
    severity="error",
    consequence="init",
    consumers=("trl", "axolotl"),
    sources=(
        (
            "trl 0.17.0 to 1.16.0 trainer/grpo_trainer.py `__init__`: Number of reward weights "
            "must match number of reward functions; run with trl 1.16.0"
        ),
        "trl 0.18.2 to 1.16.0 scripts/grpo.py: the reward model first, then the functions",
    ),
    check=_check,
)
