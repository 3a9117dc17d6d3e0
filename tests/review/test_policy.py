"""A policy's rules are held to plans as data: each breach has its place, its rule, its reason."""

import json
from pathlib import Path

import jsonschema
import pytest
from tests.tables import rows

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_text
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.review.outcome import Pair, outcome_of
from tunec.compiler.review.policy import judge, load_policy
from tunec.schemas.policy import MEASURES

SPEC = """\
tunec: 1
name: invoices
model: llama-3.1-8b
method: {lora: {rank: 16, targets: attention}}
data: {train: train.jsonl, samples: 10000, sequence: 2048}
hardware: g5.12xlarge
batch: {global: 64}
train: {epochs: 1, learning_rate: 1e-4}
"""
RULE = """\
policy: 1
rules:
  - name: some-rule
    because: we said so
"""


@pytest.fixture
def judged(tmp_path: Path):
    def judge_it(rule: str, spec: str = SPEC):
        file = tmp_path / "policy.yaml"
        file.write_text(RULE + "".join(f"    {line}\n" for line in rule.splitlines()), "utf-8")
        rules = load_policy(file)
        assert rules.faults == ()
        return judge(plan(load_text(spec)), rules)

    return judge_it


def test_measures_are_of_every_plan(judged):
    for name, unit in MEASURES.items():
        limit = "0%" if unit == "share" else "0GiB" if unit == "bytes" else "0"
        assert len(judged(f"require: {{{name}: {{to: {limit}}}}}")) == (name != "cost.run")
    needs = outcome_of(plan(load_text(SPEC)), Pair("invoices", "g5.12xlarge")).needs
    assert needs
    at_peak = f"require: {{memory.required: {{from: {needs.required}, to: {needs.required}}}}}"
    assert judged(at_peak) == ()


@pytest.mark.parametrize(*rows(__file__, "test_condition"))
def test_condition(judged, condition, holds):
    found = judged(f"require: {{{condition}}}")
    assert (found == ()) == holds, found


@pytest.mark.parametrize(*rows(__file__, "test_on"))
def test_on(judged, where, meant):
    assert bool(judged(f"on: {where}\nrequire: {{batch.global: 1}}")) == meant


def test_pins(judged):
    pinned = SPEC + "pin: {batch.micro: 1, zero.stage: {value: 2, reason: shared checkpoints}}\n"
    assert [each.message for each in judged("pins: need-a-reason", pinned)] == [
        "batch.micro is pinned without a reason"
    ]
    assert len(judged("pins: forbidden", pinned)) == 2
    assert judged("pins: forbidden") == ()


def test_a_breach_says_place_rule_and_reason(judged):
    (found,) = judged("require: {batch.global: {from: 128, to: 512}}")
    assert (found.id, found.severity) == ("some-rule", "error")
    assert found.message == (
        "batch.global is 64 for invoices on g5.12xlarge, but the policy requires "
        "at least 128 and at most 512"
    )
    decided, rule = found.labels
    assert decided.span
    assert decided.span.line == 7
    assert rule.span
    assert rule.span.file.endswith("policy.yaml")
    assert found.notes == ("we said so",)


def test_a_spec_may_allow_a_rule_with_a_reason(judged):
    allowing = SPEC + "allow: {some-rule: the audit of May}\n"
    assert judged("require: {batch.global: 1}", allowing) == ()


def test_a_plan_that_does_not_exist_breaks_nothing(judged):
    assert judged("require: {batch.global: 1}", SPEC.replace("batch:", "nonsense:")) == ()


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("require: {zero.stag: 2}", "`zero.stag` is neither a slot nor a measure"),
        ("on: {plan: {nothing: 2}}\nrequire: {zero.stage: 2}", "`nothing` is neither"),
        ("require: {memory.headroom: {from: much}}", "memory.headroom"),
        ("require: {batch.global: {}}", ""),
        ("require: {batch.global: {from: 1, upto: 2}}", ""),
        ("", ""),
        ("requires: {zero.stage: 2}", "requires"),
        ("severity: fatal\npins: forbidden", "fatal"),
    ],
)
def test_wrong_rule(tmp_path, rule, said):
    file = tmp_path / "policy.yaml"
    file.write_text(RULE + "".join(f"    {line}\n" for line in rule.splitlines()), "utf-8")
    rules = load_policy(file)
    assert rules.policy is None
    assert rules.faults
    assert any(said in each.message for each in rules.faults), rules.faults
    assert all(label.span for each in rules.faults for label in each.labels)


def test_missing_policy_and_two_of_one_name(tmp_path):
    assert load_policy(tmp_path / "nowhere.yaml").faults
    file = tmp_path / "policy.yaml"
    rule = "  - {name: some-rule, because: b, pins: forbidden}\n"
    file.write_text("policy: 1\nrules:\n" + rule * 2, "utf-8")
    (fault,) = load_policy(file).faults
    assert (fault.id, fault.message) == ("E0313", "two rules are called `some-rule`")


def test_schema_of_policies_takes_what_the_loader_takes():
    schema = json.loads(Path("schemas/json/tunec/policy.json").read_text("utf-8"))
    good = {"policy": 1, "rules": [{"name": "a-b", "because": "c", "require": {"zero.stage": 2}}]}
    jsonschema.validate(good, schema)
    for bad in ({"policy": 2, "rules": good["rules"]}, {**good, "extra": 1}, {"policy": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)


def test_measures_are_no_slots():
    assert not set(MEASURES) & set(SLOTS)


# ── the command line ─────────────────────────────────────────────────────────────────────────────


def test_an_error_keeps_files_from_being_written(tunec, tmp_path):
    spec, policy = tmp_path / "spec.yaml", tmp_path / "policy.yaml"
    spec.write_text(SPEC, "utf-8")
    policy.write_text(RULE + "    require: {batch.global: 128}\n", "utf-8")
    out = tmp_path / "out"
    command = ("compile", spec, "--target", "huggingface", "-o", out, "--policy", policy)
    result = tunec(*command)
    assert result.code == 1
    assert "some-rule" in result.err
    assert not out.exists()
    policy.write_text(RULE + "    severity: warning\n    require: {batch.global: 128}\n", "utf-8")
    result = tunec(*command)
    assert result.code == 0
    assert "some-rule" in result.err
    assert out.exists()


def test_plan_reports_and_a_faulty_policy_is_an_error(tunec, tmp_path):
    spec, policy = tmp_path / "spec.yaml", tmp_path / "policy.yaml"
    # a length at which the fastest layout leaves less free than usual
    spec.write_text(SPEC.replace("2048", "2560"), "utf-8")
    policy.write_text("policy: 1\nrules: []\n", "utf-8")
    assert tunec("plan", spec, "--policy", policy).code == 1
    policy.write_text(RULE + "    require: {batch.global: 128}\n", "utf-8")
    found = tunec("plan", spec, "--policy", policy, "--format", "json").json
    assert [each["id"] for each in found["diagnostics"]] == ["reserve-spent", "some-rule"]
