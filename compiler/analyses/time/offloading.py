"""Seconds of moving activations to the host and back."""

from tunec.compiler.analyses.memory.terms.host import moved_activations
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.analyses.time.update import REACHED


def offloading(
    workload: Workload, layout: Layout, machine: Machine, forward: float
) -> dict[str, float]:
    """Seconds of one optimizer step that `forward` seconds of forward passes do not hide.

    Out, a stream of its own copies while the next layers run; back, the backward pass waits for
    each tensor when it asks for it (trl 1.16 `models/activation_offloading.py`,
    `unpack_tensor_with_streams`: `self.s0.wait_stream(self.s1)`).
    """
    carried = moved_activations(workload, layout).carried * layout.batch.accumulation
    seconds = carried / (REACHED * machine.pcie) if carried else 0.0
    return {"offloaded activations": max(seconds - forward, 0.0) + seconds}
