"""What verl cannot do of a plan is told: with a code, a place and a fix."""

import json

import pytest
import yaml
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


def assert_told(text, code, said):
    found = errors_of(text)
    (first, *_) = [each for each in found if each.id == code]
    assert any(said in each.message for each in found if each.id == code), found
    assert first.help


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
    assert_told(REWARDED.replace(old, new), code, said)


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


VALUED = (
    REWARDED.replace(
        "objective: {grpo: {rewards: [default_compute_score], generator: vllm_colocate}}",
        "objective: {ppo: {beta: 0.01}}",
    )
    .replace("method: lora", "method: full")
    .replace("qwen2.5-7b", "qwen2.5-1.5b")
)


@pytest.mark.parametrize(*rows(__file__, "test_what_it_cannot_do_for_values_is_told"))
def test_what_it_cannot_do_for_values_is_told(old, new, code, said):
    assert_told(VALUED.replace(old, new), code, said)


def written(text, release="0.9.1"):
    result = tunec.compile(text, targets=[f"verl@{release}"])
    assert result.ok, [each.message for each in result.diagnostics if each.severity == "error"]
    (artifact,) = (each for each in result.artifacts["verl"] if each.name == "verl_ppo.yaml")
    return result.planned.plan, artifact.values


def test_a_critic_has_what_the_actor_has_but_its_rate():
    plan, values = written(VALUED)
    actor, critic = values["actor_rollout_ref"]["actor"], values["critic"]
    assert critic["fsdp"] == {
        key: value for key, value in actor["fsdp_config"].items() if key in critic["fsdp"]
    }
    assert {**critic["optim"], "lr": actor["optim"]["lr"]} == actor["optim"]
    assert critic["strategy"] == actor["strategy"]
    assert critic["model"]["path"] == values["actor_rollout_ref"]["model"]["path"]
    tokens = plan.batch.micro * plan.data.sequence
    assert critic["ppo_max_token_len_per_gpu"] == tokens
    assert critic["ppo_infer_max_token_len_per_gpu"] == tokens


def test_the_distance_is_in_the_reward_or_in_the_loss():
    _, values = written(VALUED)
    assert values["algorithm"]["use_kl_in_reward"] is True
    assert values["algorithm"]["kl_ctrl"] == {"kl_coef": 0.01}
    assert values["actor_rollout_ref"]["actor"]["use_kl_loss"] is False
    _, values = written(VALUED.replace("beta: 0.01", "beta: 0.01, kl: loss"))
    assert values["algorithm"]["use_kl_in_reward"] is False
    assert values["actor_rollout_ref"]["actor"]["kl_loss_coef"] == 0.01


def test_a_critic_beside_adapters_is_trained_in_fp32():
    _, values = written(VALUED.replace("method: full", "method: lora"))
    assert values["critic"]["fsdp"]["model_dtype"] == "fp32"
    assert values["critic"]["model"]["lora_rank"] == 0
    assert values["actor_rollout_ref"]["actor"]["fsdp_config"]["model_dtype"] == "bf16"


def test_flash_attention_is_listed_for_the_critic(tmp_path):
    spec = tmp_path / "spec.yaml"
    for objective in (VALUED, REWARDED):
        spec.write_text(objective, "utf-8")
        out = tmp_path / objective[40:60].strip().replace("\n", "")
        assert run(["compile", str(spec), "--target", "verl", "-o", str(out)], TARGETS, "0") == 0
        listed = (out / "requirements.txt").read_text("utf-8")
        assert ("flash-attn" in listed) is (objective is VALUED)


def test_the_weights_of_a_critic_are_found_from_the_bundle(tmp_path):
    """As those of the model are; of a critic that is the model, none are named apart."""
    from tunec.schemas.models.catalogue import card

    folder = tmp_path / "critic"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(card("Qwen/Qwen2.5-0.5B").config), "utf-8")
    spec = tmp_path / "spec.yaml"
    spec.write_text(VALUED.replace("beta: 0.01", "beta: 0.01, critic: ./critic"), "utf-8")
    words = ["compile", str(spec), "--target", "verl", "-o", str(tmp_path / "out")]
    assert run(words, TARGETS, "0") == 0
    made = yaml.safe_load((tmp_path / "out/verl/verl_ppo.yaml").read_text("utf-8"))
    assert made["critic"]["model"]["path"] == "../critic"
    assert made["actor_rollout_ref"]["model"]["path"] == "Qwen/Qwen2.5-1.5B"
