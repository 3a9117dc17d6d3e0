"""What verl cannot do of a plan is told: with a code, a place and a fix."""

import pytest
from tests.tables import rows

import tunec
from tunec.compiler.cli.main import run
from tunec.targets.registry import TARGETS

SPEC = """\
tunec: 1
model: llama-3.1-8b
method: lora
data: {train: train.parquet, samples: 10k, sequence: 2048}
hardware: a100-80g-x4
"""


def errors_of(text):
    result = tunec.compile(text, targets=["verl@0.9.1"])
    found = [each for each in result.diagnostics if each.severity == "error"]
    assert bool(found) is not bool(result.artifacts.get("verl"))
    return found


@pytest.mark.parametrize("more", ["", "software: {liger-kernel: '0.6.4'}\n"])
def test_the_spec_itself_is_taken(more):
    assert errors_of(SPEC + more) == []


@pytest.mark.parametrize(*rows(__file__, "test_what_it_cannot_do_is_told"))
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
    plan = tunec.compile(SPEC, targets=[f"verl@{release}"]).planned.plan
    assert (plan.states.weights, plan.states.trainable) == ("bf16", dtype)


def test_it_says_what_it_evaluates():
    held = SPEC.replace("samples: 10k", "samples: 10k, evaluation: dev.parquet")
    found = tunec.compile(f"{held}batch: {{global: 64}}\n", targets=["verl"])
    (note,) = [each for each in found.diagnostics if each.id == "held-out-in-whole-batches"]
    assert "batches of 64 held-out samples" in note.message
    assert "held-out-in-whole-batches" not in {
        each.id for each in tunec.compile(SPEC, targets=["verl"]).diagnostics
    }


@pytest.mark.parametrize(("devices", "engine"), [(1, "none"), (4, "fsdp")])
def test_torchrun_starts_its_trainer(devices, engine):
    plan = tunec.compile(SPEC.replace("x4", f"x{devices}"), targets=["verl"]).planned.plan
    assert (plan.parallel.engine, plan.launch.launcher) == (engine, "torchrun")
    words = "verl.trainer.sft_trainer --config-dir verl --config-name verl_sft"
    assert plan.launch.script == words


REWARDED = """\
tunec: 1
model: qwen2.5-7b
method: lora
objective: {grpo: {rewards: [default_compute_score], generator: vllm_colocate}}
data: {train: train.parquet, samples: 10k, sequence: 1024}
batch: {global: 128}
hardware: h100-80g-x4
"""


@pytest.mark.parametrize(*rows(__file__, "test_what_it_cannot_do_for_rewards_is_told"))
def test_what_it_cannot_do_for_rewards_is_told(old, new, code, said):
    found = errors_of(REWARDED.replace(old, new))
    (first, *_) = [each for each in found if each.id == code]
    assert any(said in each.message for each in found if each.id == code), found
    assert first.help


@pytest.mark.parametrize("name", ["score.py:function", "default_compute_score"])
def test_trl_is_told_no_reward_of_verl(name):
    text = REWARDED.replace("[default_compute_score]", f'["{name}"]')
    found = tunec.compile(text, targets=["trl"]).diagnostics
    assert [each.id for each in found if each.severity == "error"] == ["E0905"]


def test_a_reward_in_a_file_is_found_from_the_bundle(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        REWARDED.replace("[default_compute_score]", '["rewards/one.py:score"]'), "utf-8"
    )
    words = ["compile", str(spec), "--target", "verl", "-o", str(tmp_path / "out")]
    assert run(words, TARGETS, "0") == 0
    written = (tmp_path / "out/verl/verl_grpo.yaml").read_text("utf-8")
    assert "path: ../rewards/one.py\n    name: score" in written
    launch = (tmp_path / "out/launch/launch.sh").read_text("utf-8")
    assert "verl.trainer.main_ppo --config-dir verl --config-name verl_grpo" in launch


def test_one_process_starts_the_workers_of_all_devices():
    found = tunec.compile(REWARDED, targets=["verl"])
    plan = found.planned.plan
    assert (plan.launch.launcher, plan.parallel.world, plan.parallel.engine) == (
        "python",
        4,
        "fsdp",
    )
    words = "verl.trainer.main_ppo --config-dir verl --config-name verl_grpo"
    assert plan.launch.script == words
    assert found.ok
    assert plan.generation.engine_sleeps


def test_an_engine_that_sleeps_leaves_its_share_to_the_training():
    def peak(more):
        text = REWARDED.replace("rewards:", f"device_share: 0.5, {more}rewards:")
        text += "pin: {batch.micro: 4, activation_checkpointing.mode: layer}\n"
        return tunec.compile(text, targets=["verl"])

    sleeps, awake = peak(""), peak("engine_sleeps: false, ")
    away = peak("offload_training: true, ")
    share = round(0.5 * sleeps.planned.plan.devices.memory)
    step = "optimizer step"
    assert awake.planned.memory.phases[step]["generation engine"] == share
    assert "generation engine" not in sleeps.planned.memory.phases[step]
    assert sleeps.planned.memory.phases["generation"]["generation engine"] == share
    assert "frozen weights" in sleeps.planned.memory.phases["generation"]
    assert set(away.planned.memory.phases["generation"]) == {"generation engine"}
    assert away.planned.memory.host.peak_bytes > sleeps.planned.memory.host.peak_bytes
