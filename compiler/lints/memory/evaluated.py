"""What evaluation writes, as the memory account knows it, from what the files ask."""

from typing import TYPE_CHECKING

from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.evaluation.asked import evaluates
from tunec.compiler.lints.run import Run

if TYPE_CHECKING:
    from tunec.compiler.analyses.memory.workload import Generation


def answers_of(run: Run) -> "Generation | None":
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


def evaluation_batch(run: Run, micro: int) -> int:
    """Samples at once in evaluation, where it takes more than training's do; else as many."""
    asked = run.value("batch.evaluation")
    known = evaluates(run) and is_whole(asked) and asked > 0
    return asked if known else micro
