"""What evaluation writes, and how a loss is made of logits, from what the files ask."""

from typing import TYPE_CHECKING, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.counts import is_whole
from tunec.compiler.lints.facts.evaluation import evaluates

if TYPE_CHECKING:
    from tunec.compiler.analyses.memory.workload import Generation, Loss

_PATCHES: Final = ("use_liger", "freeze_merger", "vision_lora")
"""Flags of a script that puts Liger's loss into the model unasked (2U1/Qwen-VL-Series-Finetune
93fef86 src/params.py)."""
_OF_THEIR_OWN: Final = ("minicpmv", "internvl_chat", "VisualGLMModel")
"""Families whose own code makes the loss of logits in a dtype that differs between releases of
transformers: openbmb/MiniCPM-V 0dbb566 finetune/trainer.py `compute_loss`; OpenGVLab/InternVL
2410d1d internvl_chat/internvl/model/internvl_chat/modeling_internvl_chat.py `forward`."""


def answers_of(run: LintContext) -> "Generation | None":
    """The answers that Seq2SeqTrainer writes; None where there are none, or of unknown length.

    `generation_max_length` counts the prompt of a decoder, whose length nobody tells: the cheaper
    reading is a short one, since long ones are read at once.
    """
    if run.effective("trainer", "predict_with_generate").value is not True or not evaluates(run):
        return None
    length = run.effective("trainer", "generation_max_length").value
    if not is_whole(length) or length < 2:
        return None
    beams = run.effective("trainer", "generation_num_beams").value
    beams = beams if is_whole(beams) and beams > 0 else 1
    from tunec.compiler.analyses.memory.workload import Generation

    return Generation(length, beams, by_sample=True, steps=length - 1, beams=beams)


def evaluation_batch(run: LintContext, micro: int) -> int:
    """Samples at once in evaluation, where it takes more than training's do; else as many.

    Where answers of unknown length are written, prompts alone may be read.
    """
    asked = run.value("batch.evaluation")
    known = evaluates(run) and is_whole(asked) and asked > 0
    return asked if known and (not _writes(run) or answers_of(run) is not None) else micro


def _writes(run: LintContext) -> bool:
    said = run.effective("trainer", "predict_with_generate").value
    return bool(run.of("glm4")) or said is True


_OF_LABELS: Final = ("sft", "pt", "dpo")
"""Stages of LLaMA-Factory whose loss is of all logits (llamafactory 0.9.1 to 0.9.5 train/dpo/
trainer.py `concatenated_forward`: logits.to(torch.float32)); a reward's is of one value."""


def _stage(run: LintContext) -> object:
    said = run.said("llamafactory", "stage")
    return "sft" if said is None else said.value


def loss_of(run: LintContext) -> "Loss":
    """How the loss comes of the logits: all at once only where that is sure, else fused.

    transformers 4.40.2 to 5.23.0 models/<family>/modeling_<family>.py `forward`: logits of all
    positions where there are labels, in evaluation too. TRL changed its own way between releases.
    """
    of_labels = run.value("objective.kind", "sft") == "sft"
    if run.of("llamafactory"):
        of_labels = _stage(run) in _OF_LABELS
    if run.value("loss.path") != "full" or not of_labels:
        return "fused"
    if run.model is None or run.model.architecture.family in _OF_THEIR_OWN:
        return "fused"
    if answers_of(run) is not None:
        return "fused"  # llamafactory 0.9.5 train/sft/trainer.py `prediction_step` pops the labels
    if run.of("axolotl", "alpaca-lora") or any(run.said("hf", key) for key in _PATCHES):
        return "fused"
    if run.of("sft") and not run.release("trl").is_named:
        return "fused"
    return "full" if run.of("hf", "sft", "llamafactory", "glm4") else "fused"
