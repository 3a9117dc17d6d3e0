"""What is answered from memory is what emission would give."""

import random

from tunec.compiler.driver import compile_spec, header_of, plan
from tunec.compiler.emit import emit
from tunec.compiler.fleet.emission import Emissions
from tunec.compiler.frontend.load import load_text
from tunec.compiler.ir.watched import WatchedPlan
from tunec.schemas.hardware.catalogue import cluster_names
from tunec.targets.registry import TARGETS

SPEC = """\
tunec: 1
model: llama-3.2-1b
method: lora
data: {train: train.jsonl, samples: 10000, sequence: 1024}
hardware: a100-80g-x8
batch: {global: 64}
train: {epochs: 1}
"""


def test_remembered_is_emitted(monkeypatch):
    emissions, asked = Emissions(), [TARGETS.resolve(name) for name in ("huggingface", "launch")]
    runs = []
    monkeypatch.setattr(
        "tunec.compiler.fleet.emission.emit", lambda *a, **k: runs.append(1) or emit(*a, **k)
    )
    names = random.Random(1).sample(cluster_names(), 30)  # noqa: S311
    compared = 0
    for name in (*names, *names):
        loaded = load_text(SPEC, hardware=name)
        planned = plan(loaded, asked)
        if planned.plan is None:
            continue
        expected = compile_spec(loaded, asked)
        header = header_of(loaded, planned.plan)
        for target, version in asked:
            found, _ = emissions.emit(
                "run", (target, version), planned.plan, planned.facts.versions, header
            )
            compared += 1
            if expected.ok:
                assert found == expected.artifacts[target.name]
    assert compared > 60
    assert len(runs) < compared / 2


def test_another_spec_is_not_answered_from_the_first():
    emissions, asked = Emissions(), TARGETS.resolve("huggingface")
    texts = []
    for at, rank in enumerate((8, 16)):
        spec = SPEC.replace("lora", f"{{lora: {{rank: {rank}}}}}")
        planned = plan(load_text(spec), [asked])
        files, _ = emissions.emit(str(at), asked, planned.plan, {}, ("h",))
        texts.append({each.name: each.text for each in files})
    assert f'"r": {8}' in texts[0]["adapter_config.json"]
    assert f'"r": {16}' in texts[1]["adapter_config.json"]


def test_a_watched_plan_is_the_plan():
    planned = plan(load_text(SPEC)).plan
    watched = WatchedPlan(planned)
    assert watched.asked == {}
    assert (watched["zero.stage"], watched.batch.global_) == (planned["zero.stage"], 64)
    assert list(watched.asked) == ["zero.stage", "batch.global"]
    assert watched.values() == planned.values()
