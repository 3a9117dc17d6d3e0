"""Plans that the scripts of zai-org/GLM-4 do not run, or run differently."""

from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.targets.glm4.configuration import reads_images
from tunec.targets.glm4.versions import TODAY
from tunec.targets.rows import has_adapter
from tunec.targets.scripts.refusals import Refusal

_FAMILIES: Final = ("chatglm", "glm", "glm4")
"""`model_type` of the models whose token ids the scripts hard-code."""


def _evaluates_nothing(plan: Plan) -> bool:
    return plan.schedule.evaluation_steps is not None and plan.data.evaluation is None


def _sees_on_deepspeed(plan: Plan) -> bool:
    return reads_images(plan) and plan.parallel.engine == "deepspeed"


REFUSALS: Final = (
    Refusal(
        ("model.family",),
        "its scripts write the token numbers of GLM-4 into every sample (151331, 151333)",
        lambda plan: plan.model.family not in _FAMILIES,
        "zai-org/GLM-4 3f79b54, finetune.py and finetune_vision.py `process_batch`",
        "train a GLM-4 model, or compile to another target",
    ),
    Refusal(
        ("data.train",),
        "it loads no training data but .jsonl files",
        lambda plan: not plan.data.train.endswith(".jsonl"),
        "zai-org/GLM-4 3f79b54, finetune.py `_load_datasets`",
        "write the data as one JSON object a line, in a file named *.jsonl",
    ),
    Refusal(
        ("schedule.evaluation_steps", "data.evaluation"),
        "without evaluation data the Trainer refuses to evaluate",
        _evaluates_nothing,
        "transformers 4.40.2 to 5.23.0 trainer.py `Trainer.__init__`; finetune.py `__post_init__` "
        "sets `evaluation_strategy`, which later releases do not read",
        "give data.evaluation, or no evaluations",
    ),
    Refusal(
        ("parallel.engine",),
        "its scripts turn recomputation on in the model, which FSDP's own would double",
        lambda plan: plan.parallel.engine == "fsdp",
        "zai-org/GLM-4 da2fe37 finetune.py `main`: model.gradient_checkpointing_enable(); "
        "transformers trainer.py refuses both",
        "use `engine: ddp` or `engine: deepspeed`",
    ),
    Refusal(
        ("model.kind", "parallel.engine"),
        "before 2025-04 its vision script does not work with DeepSpeed, as its README says",
        _sees_on_deepspeed,
        "zai-org/GLM-4 da2fe37 and f6ee34e, finetune_demo/README_en.md",
        "use transformers 4.51 or later with today's script, or `engine: none`",
        until=TODAY,
    ),
    Refusal(
        ("model.kind", "adapter.kind"),
        "before 2025-04 its vision script does not train the whole model, as its README says",
        lambda plan: reads_images(plan) and not has_adapter(plan),
        "zai-org/GLM-4 da2fe37 and f6ee34e, finetune_demo/README_en.md",
        "train adapters, or use transformers 4.51 or later with today's script",
        until=TODAY,
    ),
)
