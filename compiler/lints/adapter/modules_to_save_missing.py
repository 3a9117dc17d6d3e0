"""Modules are to be trained in full that the model does not have."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.adapter.families import HEADS
from tunec.compiler.lints.adapter.lora import adapters, is_plain, last
from tunec.compiler.lints.adapter.tree import parts
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OF_TASKS: Final = frozenset({"qa_outputs", "v_head", "summary", "pooler", "pre_classifier"})
"""Heads that a model is given for a task: transformers 5.23.0 modeling_layers.py
`GenericForQuestionAnswering`, trl's AutoModelForCausalLMWithValueHead."""


def _check(run: Run) -> Iterator[Finding]:
    if run.model is None:
        return
    tree = run.model.architecture
    for lora in adapters(run):
        at = lora.place("modules_to_save")
        if at is None:
            continue
        heads = HEADS if not tree.head else HEADS - {"lm_head", "output_layer", "embed_out"}
        if lora.value("task_type", "CAUSAL_LM") != "CAUSAL_LM":
            heads = HEADS | _OF_TASKS
        lost = [
            each
            for each in lora.saved
            if is_plain(each) and last(each) not in parts(tree) and last(each) not in heads
        ]
        if lost:
            yield Finding(
                f"{quoted(lost, 'and')} of modules_to_save is no module of {run.model.path}",
                (at.label("trains nothing"),),
                (f"its embedding is {tree.embedding}, its head {tree.head}",),
                f"write {last(tree.embedding)} and {last(tree.head)}",
            )


RULE = Rule(
    name="modules-to-save-missing",
    severity="warning",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 utils/other.py `_set_trainable`: names that match nothing are "
            "passed over"
        ),
    ),
    check=_check,
)
