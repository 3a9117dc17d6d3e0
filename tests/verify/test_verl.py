"""Files for verl before its own trainer, in three releases.

What is asked is `verl.trainer.sft_trainer` as it is started: Hydra composes the emitted file over
verl's own, the trainer makes its classes of the sections, and its own functions say what these come
to: how often its loader deals, how many micro batches it makes, the optimizer, the rate, the mesh,
and the adapter that peft then puts into the model.
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
from tunec.targets.verl.verify import TRAINER

SPECS = specs_of("verl")
CASES = [(name, at) for name in SPECS for at in RELEASES]
FEWEST = 38


@pytest.fixture(scope="module")
def checks():
    return checked("verl", SPECS, CASES)


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


@pytest.fixture(scope="module")
def planted():
    (sound,) = compiled("verl", SPECS, FAULTED, RELEASES[-1])
    (old,) = sound.delivered.values()
    texts = {name: fault.edit(old.text) for name, fault in FAULTS.items()}
    assert all(text != old.text for text in texts.values())
    return {
        each.spec: each
        for each in verify(
            [
                replace(sound, spec=name, delivered={old.name: Delivered(old.name, name, text)})
                for name, text in texts.items()
            ]
        )
        if each.program == TRAINER
    }


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(planted, name):
    check, fault = planted[name], FAULTS[name]
    if check.status == "unchecked":
        pytest.skip(f"not checked: {check.reason}")
    assert check.status == fault.status, check
    found = [each for each in check.differences if each.key == fault.key]
    assert fault.resolved in [each.resolved for each in found], check
    assert not fault.slot or fault.slot in {each.slot for each in found}
