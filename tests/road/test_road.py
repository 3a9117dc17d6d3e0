"""A spec is compiled, its bundle's own entry is started, and it trains what was asked.

What the trainer itself says is compared with the plan and with what the data and the spec come to.
"""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from tests.road.materials import write_model, write_samples
from tests.road.runs import RUNS, Run
from tests.road.seeing import write_seeing_model, write_seen_samples
from tests.road.seen import Seen, linear_modules, seen
from tests.road.started import HERE, Plan, travel

pytestmark = [
    pytest.mark.skipif(find_spec("trl") is None, reason="trl is not installed"),
]


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Two sets of weights of one architecture, so that one cannot pass for the other."""
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "tiny", seed=1)
    write_model(folder / "other", seed=2)
    write_seeing_model(folder / "seeing")
    return folder


def marked(run: Run):
    return pytest.param(run, id=run.name, marks=() if run.always else pytest.mark.nightly)


@pytest.mark.parametrize("run", [marked(run) for run in RUNS])
def test_a_bundle_trains_what_was_asked(run, models, tmp_path):
    for model in models.iterdir():
        (tmp_path / model.name).symlink_to(model)
    write_data(run, tmp_path)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(run.spec), encoding="utf-8")
    journey = travel(tmp_path)
    told = seen(journey)
    assert told.steps == run.steps
    agrees_with_plan(told, journey.plan)
    model = (models / run.spec["model"]).resolve()
    assert told.loaded == (model / "model.safetensors",)
    assert told.adapted == planned_adapters(journey.plan, model)


def write_data(run: Run, folder: Path) -> None:
    """The samples, and the script that a spec may name."""
    file, count = folder / run.spec["data"]["train"], run.spec["data"]["samples"]
    if run.form == "images":
        write_seen_samples(file, count)
    else:
        write_samples(file, run.form, count)
    shutil.copy(HERE / "scripts" / "train.py", folder)


def agrees_with_plan(told: Seen, plan: Plan) -> None:
    """World, batch, rate of each step and checkpoints, as planned."""
    assert told.world == plan["parallel.world"]
    assert told.micro == plan["batch.micro"]
    assert told.accumulation == plan["batch.accumulation"]
    assert told.global_batch == plan["batch.global"]
    assert told.steps == plan["schedule.steps"]
    assert told.rates == pytest.approx(planned_rates(told, plan), rel=1e-4, abs=1e-12)
    assert told.checkpoints == planned_checkpoints(told.steps, plan)


def planned_adapters(plan: Plan, model: Path) -> frozenset[str]:
    """The modules of the model's own weights that PEFT's rule picks by the plan's targets.

    peft 0.21.2 tuners/tuners_utils.py `check_target_module_exists`.
    """
    if plan["adapter.kind"] != "lora":
        return frozenset()
    said = plan["adapter.targets"]
    patterns = [said] if isinstance(said, str) else [rf"(.*\.)?{name}" for name in said]
    return frozenset(
        name
        for name in linear_modules(model)
        if any(re.fullmatch(pattern, name) for pattern in patterns)
    )


def planned_rates(told: Seen, plan: Plan) -> list[float]:
    """The rate of each step by transformers' own scheduler, made of the plan's numbers."""
    import torch
    from transformers import get_scheduler

    optimizer = torch.optim.SGD([torch.zeros(1)], lr=plan["optimizer.learning_rate"])
    schedule = get_scheduler(
        plan["schedule.kind"], optimizer, plan["schedule.warmup_steps"], told.steps
    )
    rates = []
    for _ in range(told.steps):
        rates += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    return rates


def planned_checkpoints(steps: int, plan: Plan) -> tuple[int, ...]:
    """The steps that are saved, the last of them kept; the Trainer also saves at the end."""
    every, kept = plan["schedule.save_steps"], plan["schedule.keep_checkpoints"]
    saved = sorted({*range(every, steps + 1, every), steps} if every else {steps})
    return tuple(saved[-kept:] if kept else saved)
