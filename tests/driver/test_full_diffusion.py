"""Models that paint, trained in full: the optimizer that their engine runs, and what is saved."""

import pytest
from planning import spec_of

import tunec

FLUX = "black-forest-labs/FLUX.1-dev"


def compiled(**changed):
    data = {"train": "pictures", "samples": 5000, "resolution": 1024}
    asked = {"method": "full", "hardware": "h100-80g-x8", "data": data, "batch": {"global": 8}}
    return tunec.compile(spec_of(**{**asked, "targets": ["simpletuner"], **changed}))


@pytest.mark.parametrize(
    ("changed", "optimizer", "engine"),
    [
        ({"model": "sdxl"}, "adamw", "fsdp"),
        ({"model": "sdxl", "engine": "ddp"}, "adamw_bf16", "ddp"),
        ({"model": "sdxl", "engine": "deepspeed"}, "adamw", "deepspeed"),
        ({"model": "sdxl", "train": {"optimizer": "adamw_bf16"}}, "adamw_bf16", "ddp"),
        ({"model": "sdxl", "targets": ["simpletuner@4.4.1"]}, "adamw_bf16", "ddp"),
        ({"model": FLUX}, "adamw", "fsdp"),
        # 11.9 billion parameters of 16 bytes each are more than both devices have
        ({"model": FLUX, "hardware": "h100-80g-x2"}, "adamw", "deepspeed"),
    ],
)
def test_the_optimizer_is_one_that_the_engine_runs(changed, optimizer, engine):
    made = compiled(**changed)
    assert made.ok, made.diagnostics
    plan = made.planned.plan
    assert (plan.optimizer.name, plan.parallel.engine) == (optimizer, engine)
    assert plan.zero.stage < 3


def test_an_optimizer_that_is_named_stays():
    found = compiled(model="sdxl", engine="deepspeed", train={"optimizer": "adamw_bf16"})
    assert [each.id for each in found.diagnostics if each.severity == "error"] == ["E0702"]


def test_several_ranks_with_the_whole_model_write_no_checkpoint_on_the_way():
    made = compiled(model="sdxl", engine="ddp")
    assert "checkpoints-left-out" in [each.id for each in made.diagnostics]
    (text,) = [text for path, text in made.texts().items() if path.endswith("config/config.json")]
    assert '"checkpoint_step_interval": 1000000' in text


@pytest.mark.parametrize(
    "changed", [{}, {"hardware": "h100-80g-x1"}, {"method": "lora"}, {"engine": "fsdp"}]
)
def test_checkpoints_of_shards_of_one_rank_and_of_adapters_stay(changed):
    made = compiled(model="sdxl", **changed)
    assert made.ok, made.diagnostics
    assert made.planned.plan.schedule.save_steps <= 5000
    assert "checkpoints-left-out" not in [each.id for each in made.diagnostics]


def test_checkpoints_that_are_asked_for_are_refused_of_whole_models_alone():
    assert compiled(model="sdxl", train={"checkpoints": 4}).ok
    found = compiled(model="sdxl", train={"checkpoints": 4}, engine="ddp")
    errors = [each for each in found.diagnostics if each.severity == "error"]
    assert [each.id for each in errors] == ["E0905"]
    assert "hangs once it has written a checkpoint" in errors[0].message
