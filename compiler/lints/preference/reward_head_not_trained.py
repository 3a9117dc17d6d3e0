"""A reward model is trained by LoRA whose task is another: its head keeps its random weights."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.adapter.lora import is_true
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TASK: Final = "SEQ_CLS"
_OWN: Final = "center_rewards_coefficient"
"""A field of RewardConfig alone."""

_WITHOUT_GENERATE: Final = "4.52"
"""Since then classifiers have no `prepare_inputs_for_generation` (transformers modeling_utils.py
`PreTrainedModel`, no GenerationMixin), which peft's `PeftModelForCausalLM.__init__` asks for."""
_AT_RANDOM: Final = (
    "the head begins at random: the adapter learns against it, and another one stands there when "
    "it is loaded"
)
_REFUSED: Final = (
    f"since transformers {_WITHOUT_GENERATE} the adapter of a causal model is not made for a "
    "classifier: AttributeError, no attribute 'prepare_inputs_for_generation'"
)


def _check(run: Run) -> Iterator[Finding]:
    started = {each.name for each in run.of("launch") if _rewards(each)}
    for document in run.of("sft", "reward", "hf"):
        use, task = document.get("use_peft"), document.get("lora_task_type")
        if document.is_view or use is None or not is_true(use.value):
            continue
        is_reward = document.name in started or "reward" in PurePath(document.name).stem.lower()
        if not is_reward and document.get(_OWN) is None:
            continue
        saved = str(document.value("lora_modules_to_save") or "")
        if (task is not None and task.value == _TASK) or "score" in saved:
            continue
        at = task or use
        refused = run.runs(f"transformers>={_WITHOUT_GENERATE}")
        yield Finding(
            f"the adapter's task is {task.value if task else 'CAUSAL_LM'}, and a reward is trained",
            (at.label("the head `score` is neither trained nor saved"),),
            (_REFUSED if refused else _AT_RANDOM,),
            f"write lora_task_type: {_TASK}",
            Fix((task.replaced(_TASK),), "safe") if task is not None else None,
            consequence="init" if refused else None,
        )


def _rewards(launch: Document) -> bool:
    """Whether a command starts `trl reward`, or a script that is called so."""
    words = launch.value("script")
    named = words[:2] if isinstance(words, list | tuple) else [words]
    return any(isinstance(each, str) and "reward" in PurePath(each).stem.lower() for each in named)


RULE = Rule(
    name="reward-head-not-trained",
    severity="warning",
    consequence="silent",
    consumers=("trl",),
    sources=(
        (
            "trl 0.11.4 to 1.9.0 examples/scripts/reward_modeling.py: You are using a `task_type` "
            "that is different than `SEQ_CLS` for PEFT. This will lead to silent bugs"
        ),
        (
            "peft 0.10.0 to 0.21.2 peft_model.py `PeftModelForSequenceClassification.__init__`: "
            "modules_to_save classifier and score; trl 1.16.0 trainer/reward_trainer.py: "
            "it's highly recommended to set modules_to_save score"
        ),
    ),
    check=_check,
)
