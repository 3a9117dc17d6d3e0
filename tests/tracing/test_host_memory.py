"""A trace is the same on any machine: what its host has free decides nothing."""

from types import SimpleNamespace

import pytest

pytest.importorskip("deepspeed")
psutil = pytest.importorskip("psutil")

from tests.driver.planning import planned  # noqa: E402

from tunec.compiler.cli.trace_command import subject_of  # noqa: E402
from tunec.compiler.tracing.live.single_process import run  # noqa: E402


@pytest.mark.parametrize("stage", [1, 2])
def test_zero_shards_weights_that_the_host_could_not_hold(stage, monkeypatch):
    found = planned(
        model="smollm2-135m",
        method="full",
        hardware="a100-80g-x4",
        data={"train": "train.jsonl", "samples": 1000, "sequence": 128},
        pin={"zero.stage": stage, "zero.offload_optimizer": "none"},
    )
    assert found.plan is not None, found.diagnostics
    subject = subject_of(found, found.memory)
    roomy = run(subject)
    full = SimpleNamespace(available=0, total=0, used=0, percent=100.0)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: full)
    assert run(subject).phases == roomy.phases
