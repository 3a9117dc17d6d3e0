"""What verl cannot do of a plan is told: with a code, a place and a fix."""

import pytest

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_text
from tunec.targets.registry import TARGETS

SPEC = """\
tunec: 1
model: llama-3.1-8b
method: lora
data: {train: train.parquet, samples: 10k, sequence: 2048}
hardware: a100-80g-x4
"""


def errors_of(text, release="0.9.1"):
    loaded = load_text(text, targets=TARGETS.names())
    assert loaded.spec, loaded.diagnostics
    result = compile_spec(loaded, [TARGETS.resolve(f"verl@{release}")])
    found = [each for each in result.diagnostics if each.severity == "error"]
    assert bool(found) is not bool(result.artifacts.get("verl"))
    return found


@pytest.mark.parametrize("more", ["", "software: {liger-kernel: '0.6.4'}\n"])
def test_the_spec_itself_is_taken(more):
    assert errors_of(SPEC + more) == []


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("method: lora", "method: qlora", "E0901", "quantization.format"),
        ("method: lora", "method: lora\nengine: ddp", "E0905", "under FSDP"),
        ("method: lora", "method: lora\nengine: deepspeed", "E0905", "under FSDP"),
        ("method: lora", "method: lora\nlauncher: accelerate", "E0903", "launch.launcher"),
        ("method: lora", "method: {lora: {dropout: 0.1}}", "E0901", "adapter.dropout"),
        ("method: lora", "method: {lora: {rslora: true}}", "E0901", "adapter.rslora"),
        ("train.parquet", "train.jsonl", "E0905", "Parquet"),
        ("method: lora", "method: lora\nobjective: dpo", "E0901", "objective.kind"),
        (
            "model: llama-3.1-8b\nmethod: lora",
            "model: llama-3.2-1b\nmethod: full\nobjective: {grpo: {rewards: [accuracy_reward]}}",
            "E0901",
            "objective.kind",
        ),
        ("method: lora", "method: lora\ntrain: {seed: 7}", "E0901", "runtime.seed"),
        ("method: lora", "method: lora\ntrain: {schedule: linear}", "E0901", "schedule.kind"),
        ("method: lora", "method: lora\ntrain: {epochs: 1.5}", "E0901", "schedule.epochs"),
        (
            "method: lora",
            "method: lora\ntrain: {optimizer: {max_grad_norm: 0}}",
            "E0905",
            "clips",
        ),
    ],
)
def test_what_it_cannot_do_is_told(old, new, code, said):
    found = errors_of(SPEC.replace(old, new))
    assert {each.id for each in found} >= {code}
    (first, *_) = [each for each in found if each.id == code]
    assert any(said in each.message for each in found if each.id == code), found
    assert first.help
    assert first.labels


@pytest.mark.parametrize(
    ("release", "dtype"), [("0.8.0", "fp32"), ("0.9.0", "bf16"), ("0.9.1", "bf16")]
)
def test_adapters_are_trained_in_the_dtype_that_a_release_makes_them(release, dtype):
    loaded = load_text(SPEC, targets=TARGETS.names())
    plan = compile_spec(loaded, [TARGETS.resolve(f"verl@{release}")]).planned.plan
    assert (plan.states.weights, plan.states.trainable) == ("bf16", dtype)


@pytest.mark.parametrize(("devices", "engine"), [(1, "none"), (4, "fsdp")])
def test_torchrun_starts_its_trainer(devices, engine):
    loaded = load_text(SPEC.replace("x4", f"x{devices}"), targets=TARGETS.names())
    plan = compile_spec(loaded, [TARGETS.resolve("verl")]).planned.plan
    assert (plan.parallel.engine, plan.launch.launcher) == (engine, "torchrun")
    words = "verl.trainer.sft_trainer --config-dir verl --config-name verl_sft"
    assert plan.launch.script == words
