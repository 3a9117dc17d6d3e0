"""The rewards that TRL itself has, and the records which they read."""

from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.schemas.data_paths import Record

PACKAGE: Final = "trl.rewards."
"""The package of TRL's own rewards, for a program that only accepts import paths."""
_COMPARING: Final = ("accuracy_reward", "reasoning_accuracy_reward")
OWN_REWARDS: Final = (*_COMPARING, "think_format_reward")
"""The rewards in trl 0.27.0 to 1.16.0 rewards/__init__.py whose construction takes no argument."""
_WHY: Final = (
    "{} reads an answer as a message, which it is where the prompt is a conversation, and ends the "
    "run at a text: trl 0.18.2 to 1.16.0 rewards, trainer/grpo_trainer.py"
)


def rewarded_record(plan: Plan) -> Record:
    """What a record needs for the rewards of a plan: a prompt, and what its own rewards read."""
    named = [each.removeprefix(PACKAGE) for each in plan.objective.rewards]
    own = [each for each in named if each in OWN_REWARDS]
    if not own:
        return Record(("prompt",))
    solutions = ("solution",) if set(own) & set(_COMPARING) else ()
    return Record(("prompt",), "chat", texts=solutions, why=_WHY.format(own[0]))
