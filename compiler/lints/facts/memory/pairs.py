"""Samples of two answers, as methods of preference compare them, from what the files ask."""

from typing import TYPE_CHECKING, Final

from tunec.compiler.lints.context import LintContext

if TYPE_CHECKING:
    from tunec.compiler.analyses.memory.workload import Preference
    from tunec.schemas.terms import Reference

_STAGES: Final = ("dpo", "rm")
_KINDS: Final = ("dpo", "reward")
_METHODS: Final = ("dpo", "dpop", "ipo", "orpo", "simpo")
_WITHOUT_REFERENCE: Final = ("orpo", "simpo")


def pairs_of(run: LintContext, adapter: str) -> "Preference | None":
    """Two sequences for each sample; None where one is read at a time, or nobody tells.

    llamafactory 0.9.1 to 0.9.5 data/collator.py `PairwiseDataCollatorWithPadding`; trl 0.9 to 1.16
    trainer/dpo_trainer.py, reward_trainer.py; axolotl 0.8.1 to 0.19.0 utils/schemas/enums.py
    `RLType`.
    """
    stage, method = run.said("llamafactory", "stage"), run.said("axolotl", "rl")
    is_pair = (
        (stage is not None and stage.value in _STAGES)
        or (method is not None and method.value in _METHODS)
        or bool(run.of(*_KINDS))
    )
    if not is_pair:
        return None
    from tunec.compiler.analyses.memory.workload import Preference

    return Preference(2, _reference(run, adapter))


def _reference(run: LintContext, adapter: str) -> "Reference":
    """A second model where the whole first one is trained, if that is sure; else none is counted.

    llamafactory 0.9.1 to 0.9.5 train/dpo/workflow.py `run_dpo`: finetuning_args.use_ref_model;
    train/trainer_utils.py `create_ref_model`.
    """
    if run.of("dpo"):
        told: Reference = run.value("objective.reference", "none")
        return told
    stage, loss = run.said("llamafactory", "stage"), run.said("llamafactory", "pref_loss")
    is_compared = stage is not None and stage.value == "dpo"
    compares = is_compared and (loss is None or loss.value not in _WITHOUT_REFERENCE)
    return "resident" if compares and adapter == "none" else "none"
