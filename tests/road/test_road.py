"""A spec is compiled, its bundle's own entry is started, and it trains what was asked.

What the trainer itself says is compared with the plan and with what the data and the spec come to.
"""

import json
import math
import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from importlib.util import find_spec

import pytest
from tests.road.bundle_run import Journey, Plan, start, tunec
from tests.road.runs import RUNS, Run
from tests.road.seen import (
    Seen,
    arguments_of,
    checkpoints_in,
    linear_modules,
    packed,
    seen,
    settings_of_deepspeed,
    trained_in,
)
from tests.road.seen_cookbook import seen_of_cookbook
from tests.road.simpletuner_observation import (
    linear_modules_of_denoiser,
    seen_of_painting,
    weights_of,
)

from tunec.compiler.consumers.environments import prepare

pytestmark = [pytest.mark.skipif(find_spec("trl") is None, reason="trl is not installed")]


def of_loop(loop: str):
    """Runs that a loop trains as parameters, most of them nightly."""
    return [
        pytest.param(run, id=run.name, marks=() if run.always else pytest.mark.nightly)
        for run in RUNS
        if run.loop == loop
    ]


@pytest.mark.parametrize("run", of_loop("transformers"))
def test_a_bundle_trains_what_was_asked(run, travelled):
    journey = travelled(run)
    told = seen(journey)
    assert told.steps == run.steps
    assert told.samples == rows_of(run, journey)
    agrees_with_plan(told, journey.plan)
    model = (journey.project / run.spec["model"]).resolve()
    assert told.loaded == (model / "model.safetensors",)
    modules = linear_modules(model)
    assert told.adapted == planned_adapters(journey.plan, modules)
    assert told.beside == {*journey.plan["adapter.also_train"]}
    if journey.plan["objective.kind"] == "reward":
        gives_one_number(journey)
    agrees_with_base(journey, modules)
    agrees_with_engine(journey)
    for key, value in run.spec.get("extra", {}).get("trl", {}).items():
        assert getattr(arguments_of(journey), key) == value


@pytest.mark.parametrize("run", of_loop("llama-cookbook"))
def test_llama_cookbook_trains_what_was_asked(run, travelled):
    journey = travelled(run)
    told, plan = seen_of_cookbook(journey), journey.plan
    epochs = int(plan["schedule.epochs"])
    assert sum(told.updates) == run.steps == plan["schedule.steps"]
    assert told.rows == rows_of(run, journey)
    assert told.batches == (told.rows // plan["batch.micro"],) * epochs
    assert told.updates == (math.ceil(told.batches[0] / plan["batch.accumulation"]),) * epochs
    assert told.trained == sum(told.batches)
    model = (journey.project / run.spec["model"]).resolve()
    assert told.loaded == (model / "model.safetensors",)
    assert told.adapted == planned_adapters(plan, linear_modules(model))


@pytest.mark.parametrize("run", of_loop("simpletuner"))
def test_simpletuner_trains_what_was_asked(run, travelled):
    journey = travelled(run)
    told, plan = seen_of_painting(journey), journey.plan
    assert told.world == plan["parallel.world"] == 2
    assert told.micro == plan["batch.micro"]
    assert told.accumulation == plan["batch.accumulation"]
    assert told.global_batch == plan["batch.global"]
    assert told.steps == run.steps == (plan["schedule.steps"] or plan["schedule.estimated_steps"])
    assert told.limit == (plan["schedule.steps"] or told.updates * plan["schedule.epochs"])
    assert max(told.drawn) == sum(math.ceil(each / told.world) for each in run.pictures.values())
    assert told.updates == math.ceil(told.batches / told.accumulation)
    rates = planned_rates(told.limit, plan)
    assert told.rates == pytest.approx(rates[1 : told.steps], rel=5e-3)
    every, kept = plan["schedule.save_steps"], plan["schedule.keep_checkpoints"] or 0
    assert told.checkpoints == tuple(range(every, told.steps + 1, every))[-kept:]
    model = (journey.project / "painting").resolve()
    assert told.loaded == (model,)
    modules = linear_modules_of_denoiser(model / "transformer")
    assert told.adapted == planned_adapters(plan, modules)
    assert len(told.kept) == 2 * (plan["adapter.kind"] == "none")
    assert len(set(told.kept)) < 2


@pytest.mark.nightly
def test_shards_that_paint_go_on_from_a_checkpoint(travelled):
    """A second start takes the steps behind the last checkpoint, to the same weights."""
    (run,) = (run for run in RUNS if run.name == "pictures in full")
    journey = travelled(run)
    assert journey.plan["parallel.engine"] == "fsdp"
    pipeline = journey.output / "pipeline"
    whole, steps = weights_of(pipeline), seen_of_painting(journey).checkpoints
    for left in (pipeline, journey.output / f"checkpoint-{steps[-1]}"):
        shutil.rmtree(left)
    log = start(journey.project, libraries=[str(prepare(run.beside).packages)])
    assert f"Steps:  50%|█████     | {steps[0]}/{run.steps} " in log
    assert checkpoints_in(journey.output) == steps
    again = weights_of(pipeline)
    assert again.keys() == whole.keys()
    assert all(bool((again[name] == whole[name]).all()) for name in whole)


@pytest.mark.nightly
def test_a_run_goes_on_from_a_checkpoint(travelled):
    """Words after the entry reach the trainer, which starts where the checkpoint ends."""
    (run,) = (run for run in RUNS if run.name == "saved often")
    journey = travelled(run)
    whole = seen(journey)
    log = start(journey.project, "--resume_from_checkpoint", "output/checkpoint-3")
    assert re.search(r"Resuming training from checkpoint with .* global step 3$", log, re.MULTILINE)
    again = seen(replace(journey, log=log))
    assert again.rates == whole.rates
    assert again.checkpoints == whole.checkpoints


def rows_of(run: Run, journey: Journey) -> int:
    """What the trainer draws from: the samples, or as many packed rows as tunec says."""
    if not run.spec["data"].get("packing"):
        return run.spec["data"]["samples"]
    said = tunec(journey.project, "explain", "spec.yaml", "schedule.steps")
    (rows,) = re.findall(r"decided by schedule-training: ([\d,]+) rows \(", said)
    return int(rows.replace(",", ""))


def gives_one_number(journey: Journey) -> None:
    """A reward model was trained on pairs, and is loaded as one again."""
    from transformers import AutoConfig

    assert re.search(r"'accuracy': .*'margin': ", journey.log)
    adapter = journey.output / "adapter_config.json"
    if adapter.exists():
        assert json.loads(adapter.read_text("utf-8"))["task_type"] == "SEQ_CLS"
        return
    config = AutoConfig.from_pretrained(journey.output)
    assert config.architectures == ["LlamaForSequenceClassification"]
    assert config.num_labels == 1


def agrees_with_plan(told: Seen, plan: Plan) -> None:
    """World, batch, rate of each step and checkpoints, as planned."""
    assert told.world == plan["parallel.world"]
    assert told.micro == plan["batch.micro"]
    assert told.accumulation == plan["batch.accumulation"]
    assert told.global_batch == plan["batch.global"]
    assert told.steps == plan["schedule.steps"]
    assert told.rates == pytest.approx(planned_rates(told.steps, plan), rel=1e-4, abs=1e-12)
    assert told.evaluated == planned_evaluations(told.steps, plan)
    assert told.checkpoints == planned_checkpoints(told.steps, plan)


def agrees_with_base(journey: Journey, modules: Iterable[str]) -> None:
    """Every linear module is quantised as planned, and the adapters are trained in their dtype."""
    said, plan = packed(journey.log), journey.plan
    form, storage = plan["quantization.format"], plan["quantization.storage"]
    if form == "none":
        assert said == {}
        return
    compute = DTYPES[plan["quantization.compute"]]
    in_four = (form, str(plan["quantization.double"]), compute, DTYPES[storage])
    kept = ("int8", "False", "None", "None") if form == "int8" else in_four
    assert said == dict.fromkeys(modules, kept)
    assert trained_in(journey.log) == DTYPES[plan["states.trainable"]]


DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", None: "uint8"}
"""Names of the plan as torch has them; nothing is said of storage in bytes."""


def agrees_with_engine(journey: Journey) -> None:
    """Stage, batch and the dtype that micro batches are added up in, where DeepSpeed runs."""
    said, plan = settings_of_deepspeed(journey), journey.plan
    assert bool(said) == (plan["parallel.engine"] == "deepspeed")
    if said:
        assert said["zero_optimization_stage"] == str(plan["zero.stage"])
        assert said["train_batch_size"] == str(plan["batch.global"])
        assert said["gradient_accumulation_steps"] == str(plan["batch.accumulation"])
        assert said["grad_accum_dtype"] == plan["states.gradients"]


def planned_adapters(plan: Plan, modules: Iterable[str]) -> frozenset[str]:
    """The linear modules of the model's own weights that PEFT's rule picks by the plan's targets.

    peft 0.21.2 tuners/tuners_utils.py `check_target_module_exists`.
    """
    if plan["adapter.kind"] != "lora":
        return frozenset()
    said = plan["adapter.targets"]
    patterns = [said] if isinstance(said, str) else [rf"(.*\.)?{name}" for name in said]
    return frozenset(
        name for name in modules if any(re.fullmatch(pattern, name) for pattern in patterns)
    )


def planned_rates(steps: int, plan: Plan) -> list[float]:
    """The rate of each step by transformers' own scheduler, made of the plan's numbers."""
    import torch
    from transformers import get_scheduler

    optimizer = torch.optim.SGD([torch.zeros(1)], lr=plan["optimizer.learning_rate"])
    schedule = get_scheduler(plan["schedule.kind"], optimizer, plan["schedule.warmup_steps"], steps)
    rates = []
    for _ in range(steps):
        rates += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    return rates


def planned_checkpoints(steps: int, plan: Plan) -> tuple[int, ...]:
    """The steps that are saved, the last of them kept; the Trainer also saves at the end."""
    every, kept = plan["schedule.save_steps"], plan["schedule.keep_checkpoints"]
    saved = _multiples(every, steps)
    return saved[-kept:] if kept else saved


def planned_evaluations(steps: int, plan: Plan) -> tuple[int, ...]:
    """The steps after which the Trainer evaluates, where it does: the last is among them too."""
    every = plan["schedule.evaluation_steps"]
    return _multiples(every, steps) if every else ()


def _multiples(every: int | None, steps: int) -> tuple[int, ...]:
    """Every so many steps, and the last step."""
    return tuple(sorted({*(range(every, steps, every) if every else ()), steps}))
