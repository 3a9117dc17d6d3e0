"""What evaluation keeps besides a forward pass."""

from tunec.compiler.analyses.memory.activations import text_tokens
from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload


def kept_logits(workload: Workload, widths: Arithmetic, ranks: int) -> Sizes:
    """Logits of evaluation batches that wait for the metric.

    transformers 5.23 `trainer.py`, `evaluation_loop`: those of all ranks are gathered on each, and
    `trainer_pt_utils.py`, `EvalLoopContainer.add`, joins what waits and what comes to a new tensor.
    accelerate 1.15 `accelerator.py`, `prepare_model`, makes what autocast gives fp32.
    """
    batches = workload.kept_evaluation_batches
    if not batches:
        return {}
    size = 4 if widths.autocast else widths.compute
    joined = 2 * batches if batches > 1 else batches
    each = size * workload.architecture.vocab * text_tokens(workload) * ranks
    return {"kept evaluation logits": float(each * joined)}
