"""Plans that finetune.py of OpenBMB/MiniCPM-V does not run, or runs differently."""

from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.targets.minicpm_v.rows import FILE, language_model
from tunec.targets.scripts.refusals import Refusal


def _evaluates_nothing(plan: Plan) -> bool:
    return plan.schedule.evaluation_steps is not None and plan.data.evaluation is None


REFUSALS: Final = (
    Refusal(
        ("model.path",),
        "the name of the model does not tell its chat format, which --llm_type needs",
        lambda plan: language_model(plan) is None,
        "OpenBMB/MiniCPM-V 0dbb566, finetune/readme.md and finetune/dataset.py conversation_to_ids",
        "keep the name of the release in the path, as in openbmb/MiniCPM-V-2_6",
    ),
    Refusal(
        ("schedule.evaluation_steps", "data.evaluation"),
        "without evaluation data the Trainer refuses to evaluate",
        _evaluates_nothing,
        "transformers 4.40.2 to 4.51.3 trainer.py `Trainer.__init__` and `get_eval_dataloader`",
        "give data.evaluation, or no evaluations",
    ),
    Refusal(
        ("data.train",),
        "it reads its data by json.load, which takes one JSON document and not one a line",
        lambda plan: plan.data.train.endswith(".jsonl"),
        f"{FILE} `make_supervised_data_module`",
        "write the data as one JSON list",
    ),
)
