"""Seconds that an objective over answers adds to a step: the reference, and generating answers."""

from math import hypot

from tunec.compiler.analyses.memory.terms.generation import cache_bytes
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.coefficients import FITTED
from tunec.compiler.analyses.time.compute import product_rate
from tunec.compiler.analyses.time.flops import operations
from tunec.compiler.analyses.time.kernels import forward_kernels
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.analyses.time.update import held_bytes


def answers(workload: Workload, layout: Layout, machine: Machine) -> dict[str, float]:
    """Seconds in one optimizer step; empty for supervised training.

    A separate server that generates the answers is not counted, as its devices are unknown.
    """
    return {
        "reference forward": _reference(workload, layout, machine),
        "generation": _generation(workload, layout, machine),
    }


def _share(layout: Layout) -> int:
    return layout.batch.micro * layout.batch.accumulation


def _reference(workload: Workload, layout: Layout, machine: Machine) -> float:
    """Another forward pass of every sequence, without the adapters' products."""
    asked = workload.preference
    if asked is None or asked.reference not in ("resident", "base"):
        return 0
    sequences = asked.sequences * _share(layout)
    return sequences * operations(workload).forward / product_rate(machine)


def _generation(workload: Workload, layout: Layout, machine: Machine) -> float:
    """Prompts at once, then token by token, each as long as weights and cache take to be read.

    A step of decoding reads every weight and what the sequences have cached, half of the whole on
    average; with transformers' loop it waits for Python to launch the kernels of every layer
    (`Constants.kernel`), which an engine with recorded graphs does not.
    """
    asked = workload.generation
    if asked is None or not asked.steps:
        return 0
    sequences = _share(layout) if asked.by_sample else asked.sequences
    prompts = sequences * operations(workload).forward * (1 - asked.steps / asked.tokens)
    cached = sequences * (asked.tokens - asked.steps / 2) * cache_bytes(workload, layout.states)
    read = (held_bytes(workload, layout.states) + cached) / machine.bandwidth
    launched = (
        0.0 if workload.generation_engine_bytes else FITTED.kernel * forward_kernels(workload)
    )
    return prompts / product_rate(machine) + asked.steps * hypot(read, launched)
