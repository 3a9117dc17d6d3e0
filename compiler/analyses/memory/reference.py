"""What a preference method's reference takes of a training step besides its weights."""

from tunec.compiler.analyses.memory.phase import NOTHING, Group, Terms, group
from tunec.compiler.analyses.memory.workload import Workload


def reference_forward(workload: Workload, kept: Terms, working: Terms, logits: float) -> Group:
    """The reference's forward pass after the trained model's own (trl 1.16, `_compute_loss`).

    `logits`: bytes of a sequence's logits and what was made of them, the trained model's first.
    """
    asked = workload.preference
    if asked is None or asked.scored or asked.reference not in ("resident", "base"):
        return NOTHING
    return group(kept, working, {"logits and loss": logits})
