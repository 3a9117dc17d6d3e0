"""What is answered from memory is what emission would give."""

import random

from tests.small_spec import SPEC

from tunec.compiler.driver import compile_spec, plan
from tunec.compiler.emit import emit
from tunec.compiler.fleet.emission import Alike, Emissions
from tunec.compiler.frontend.load import load_text
from tunec.compiler.ir.recollection import WatchedPlan
from tunec.compiler.lints.emission import objections
from tunec.compiler.rendering import header_of
from tunec.schemas.hardware.catalogue import cluster_names
from tunec.targets.registry import TARGETS


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


def test_what_rules_are_remembered_to_find_is_what_they_find(monkeypatch):
    """Also where files come again, and where they differ a little from the ones before."""
    emissions, asked = Emissions(), [TARGETS.resolve(name) for name in ("deepspeed", "huggingface")]
    monkeypatch.setattr(  # notes too, which are left out of what is told
        "tunec.compiler.lints.emission.told_of", lambda found, *_: tuple(found)
    )
    names = [*random.Random(2).sample(cluster_names(), 9), "v100-sxm2-32g-x2", "t4-x4"]  # noqa: S311
    compared, told = 0, 0
    for spec in (SPEC, SPEC.replace("llama-3.2-1b", "qwen2.5-7b")):
        for name in sorted((*names, *names)):
            planned = plan(load_text(spec, hardware=name), asked, repairing=False)
            for each in asked if planned.plan else ():
                of = planned.facts, planned.plan
                files, _ = emissions.emit(spec, each, of[1], of[0].versions, ("h",))
                expected = [_said(one) for one in objections(each, files, *of)]
                assert [_said(one) for one in emissions.objections(each, files, *of)] == expected
                compared, told = compared + 1, told + len(expected)
    assert compared > 60
    assert told > 0


def _said(found):
    return found.id, found.severity, found.message, found.notes, found.help


def test_plans_are_alike_in_what_was_asked_so_far():
    """A result that rests on one slot more is not given to plans that differ there."""
    known: Alike[str] = Alike()
    small, large = (
        plan(load_text(SPEC.replace("lora", f"{{lora: {{rank: {rank}}}}}"))).plan
        for rank in (8, 16)
    )
    known.keep(small, {"zero.stage": small["zero.stage"]}, "of any rank")
    assert known.recall(large) == "of any rank"
    other = Alike()
    other.keep(small, {"zero.stage": small["zero.stage"], "adapter.rank": 8}, "of rank 8")
    assert (other.recall(small), other.recall(large)) == ("of rank 8", None)
    other.keep(large, {"zero.stage": large["zero.stage"], "adapter.rank": 16}, "of rank 16")
    other.keep(small, {"batch.global": 64}, "of 64")
    assert other.recall(large) == "of rank 16"
