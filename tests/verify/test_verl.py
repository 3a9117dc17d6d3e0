"""Files for verl before its own programs, in three releases.

What is asked is `verl.trainer.sft_trainer` as it is started: Hydra composes the emitted file over
verl's own, the trainer makes its classes of the sections, and its own functions say what these come
to: how often its loader deals, how many micro batches it makes, the optimizer, the rate, the mesh,
and the adapter that peft then puts into the model. `verl.trainer.main_ppo` is asked in the same way
until it would start Ray, with its own checks of the whole.
"""

from dataclasses import dataclass
from typing import Any

import pytest
from tests.verify.edited_runs import Edit, drop, put
from tests.verify.trainer_specs import assert_resolved, checked, compiled, specs_of

from tunec.compiler.verify.contract import Delivered
from tunec.compiler.verify.queries import verify
from tunec.schemas.frozen import replace
from tunec.targets.verl.packages import RELEASES
from tunec.targets.verl.verify import REWARDING, TRAINER

SPECS = specs_of("verl")
CASES = [(name, at) for name in SPECS for at in RELEASES]
FEWEST = 38


REWARDED = specs_of("verl_grpo")
REWARDED_CASES = [(name, at) for name in REWARDED for at in RELEASES]
FEWEST_REWARDED = 40


@pytest.fixture(scope="module")
def checks():
    return checked("verl", SPECS, CASES)


@pytest.fixture(scope="module")
def rewarded():
    return checked("verl", REWARDED, REWARDED_CASES)


@pytest.mark.parametrize("release", RELEASES)
def test_the_program_of_rewards_resolves_what_was_planned(rewarded, release):
    assert_resolved(rewarded, f"verl@{release}", REWARDING, set(REWARDED), FEWEST_REWARDED)


@pytest.mark.parametrize("release", RELEASES)
def test_the_program_resolves_what_was_planned(checks, release):
    assert_resolved(checks, f"verl@{release}", TRAINER, set(SPECS), FEWEST)


@dataclass(frozen=True)
class Planted:
    """An edit of the file of one spec, and the key and slot that must be named for it."""

    edit: Edit
    key: str
    resolved: Any
    slot: str | None = None
    status: str = "differs"


FAULTED = "gathered-1"
FAULTS = {
    "rate": Planted(put("optim.lr", 1e-3), "optim.lr", 1e-3, "optimizer.learning_rate"),
    "rate deleted": Planted(drop("optim.lr"), "optim.lr", 1e-3, "optimizer.learning_rate"),
    "length": Planted(put("data.max_length", 512), "data.max_length", 512, "data.sequence"),
    "steps": Planted(
        put("trainer.total_training_steps", 7), "trainer.total_epochs", 7, "schedule.steps"
    ),
    "batch": Planted(
        put("data.use_dynamic_bsz", True),
        "data.micro_batch_size_per_gpu",
        None,
        "batch.accumulation",
    ),
    "sharding": Planted(
        put("engine.reshard_after_forward", True),
        "engine.reshard_after_forward",
        "FULL_SHARD",
        "fsdp.sharding",
    ),
    "mesh": Planted(put("engine.fsdp_size", 2), "engine.fsdp_size", [4, 2], "parallel.world"),
    "version": Planted(put("engine.strategy", "fsdp2"), "engine.strategy", "fsdp2", "fsdp.version"),
    "precision": Planted(
        put("engine.mixed_precision.param_dtype", "fp16"),
        "engine.mixed_precision.param_dtype",
        "float16",
        "precision.compute",
    ),
    "weights": Planted(
        put("engine.model_dtype", "bf16"), "engine.model_dtype", "bf16", "states.weights"
    ),
    "kernel": Planted(
        drop("optim.override_optimizer_config.fused"),
        "optim.optimizer_impl",
        False,
        "optimizer.kernel",
    ),
    "adapter": Planted(put("model.lora_rank", 8), "model.lora_rank", 8, "adapter.kind"),
    "warm-up": Planted(
        put("optim.lr_warmup_steps", 3), "optim.lr_warmup_steps", 3, "schedule.warmup_steps"
    ),
    "unread": Planted(put("data.packing", True), "data.packing", True),
    "unknown key of a class": Planted(
        put("engine.sharding_strategy", "FULL_SHARD"),
        "engine.sharding_strategy",
        "FULL_SHARD",
        status="refused",
    ),
    "unknown word of a class": Planted(
        put("optim.lr_scheduler_type", "linear"),
        "optim.lr_scheduler_type",
        "linear",
        status="refused",
    ),
}


FAULTED_REWARDED = "compared"
FAULTS_REWARDED = {
    "estimator": Planted(
        put("algorithm.adv_estimator", "rloo"), "algorithm.adv_estimator", "rloo", "objective.kind"
    ),
    "samples": Planted(
        put("actor_rollout_ref.rollout.n", 4), "actor_rollout_ref.rollout.n", 4, "batch.global"
    ),
    "share": Planted(
        put("actor_rollout_ref.rollout.gpu_memory_utilization", 0.9),
        "actor_rollout_ref.rollout.gpu_memory_utilization",
        0.9,
        "generation.device_share",
    ),
    "engine deleted": Planted(
        drop("actor_rollout_ref.rollout.name"),
        "actor_rollout_ref.rollout.name",
        None,
        status="refused",
    ),
    "reference": Planted(
        put("actor_rollout_ref.actor.use_kl_loss", False),
        "actor_rollout_ref.actor.use_kl_loss",
        False,
        "objective.reference",
    ),
    "micro batch deleted": Planted(
        drop("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"),
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        None,
        status="refused",
    ),
    "average": Planted(
        put("actor_rollout_ref.actor.loss_agg_mode", "mean"),
        "actor_rollout_ref.actor.loss_agg_mode",
        "mean",
        status="refused",
    ),
    "answers": Planted(
        put("data.max_response_length", 64), "data.max_response_length", 64, "data.sequence"
    ),
}
KINDS = {
    TRAINER: (SPECS, FAULTED, FAULTS),
    REWARDING: (REWARDED, FAULTED_REWARDED, FAULTS_REWARDED),
}


def _asked_of(program):
    specs, name, faults = KINDS[program]
    (sound,) = compiled("verl", specs, name, RELEASES[-1])
    (old,) = sound.delivered.values()
    texts = {name: fault.edit(old.text) for name, fault in faults.items()}
    assert all(text != old.text for text in texts.values())
    return {
        (program, each.spec): each
        for each in verify(
            [
                replace(sound, spec=name, delivered={old.name: Delivered(old.name, name, text)})
                for name, text in texts.items()
            ]
        )
        if each.program == program
    }


@pytest.fixture(scope="module")
def planted():
    return {at: check for program in KINDS for at, check in _asked_of(program).items()}


@pytest.mark.parametrize(
    ("program", "name"), [(program, name) for program in KINDS for name in KINDS[program][2]]
)
def test_a_planted_fault_is_found(planted, program, name):
    check, fault = planted[program, name], KINDS[program][2][name]
    if check.status == "unchecked":
        pytest.skip(f"not checked: {check.reason}")
    assert check.status == fault.status, check
    found = [each for each in check.differences if each.key == fault.key]
    assert fault.resolved in [each.resolved for each in found], check
    assert not fault.slot or fault.slot in {each.slot for each in found}
