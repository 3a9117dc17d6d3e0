"""Stage 3's parameters, visit by visit, against DeepSpeed's own coordinator."""

import json
import os
import subprocess
import sys

import pytest
from trace_combinations import subject
from trace_row import Combination

from tunec.compiler.analyses.memory import fetches, gathered_visits

ROW = Combination(
    "mixtral-8x7b", states="mixed", engine="deepspeed", world=8, stage=3, checkpointed=True
)


def test_experts_are_whole_as_deepspeed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the turn, and at most in each layer's backward pass, to the element."""
    pytest.importorskip("deepspeed")
    asked = subject(ROW)
    # DeepSpeed does not count the buffers that parameters are copied out of
    monkeypatch.setattr(gathered_visits._Buffers, "held", 0)
    found = fetches.live_elements(
        asked.workload.architecture, asked.layout.zero, checkpointed=True, blocks=True
    )
    assert [found.turn, *found.layers] == _counted()


def _counted() -> list[int]:
    """What DeepSpeed counted, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    last: list[int] = json.loads(done.stdout.splitlines()[-1])
    return last


def _count() -> list[int]:
    os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    from deepspeed.runtime.zero.partitioned_param_coordinator import (
        PartitionedParameterCoordinator as Coordinator,
    )

    from tunec.compiler.tracing.live.single_process import run

    visits: list[tuple[str, bool, int, int]] = []
    fetch = Coordinator.fetch_sub_module

    def seen(self, module, forward):
        fetch(self, module, forward)
        prefix = "_PartitionedParameterCoordinator__"
        step, whole = (getattr(self, prefix + each) for each in ("step_id", "n_available_params"))
        visits.append((type(module).__name__, forward, step, whole))

    Coordinator.fetch_sub_module = seen
    run(subject(ROW))
    begins = max(at for at, (_, _, step, _) in enumerate(visits) if step == 1)
    return _highest(visits[begins:])


def _highest(visits: list[tuple[str, bool, int, int]]) -> list[int]:
    """From the last forward visit to the first backward one of a layer's or the head's parameters,
    and in each layer from its first visit in the backward pass on."""
    turn = next(at for at, (_, forward, *_) in enumerate(visits) if not forward)
    head = next(at for at, (kind, *_) in enumerate(visits[turn:], turn) if kind == "Linear")
    found = [max(whole for *_, whole in visits[turn - 1 : head])]
    for kind, forward, _, whole in visits[turn:]:
        if kind.endswith("DecoderLayer") and not forward:
            found.append(0)
        elif kind == "Embedding":
            break
        if len(found) > 1:
            found[-1] = max(found[-1], whole)
    return found


if __name__ == "__main__":
    print(json.dumps(_count()))
