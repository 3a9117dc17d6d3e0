"""What a target needs holds where the spec is silent, and is an error where it says otherwise."""

import pytest

import tunec
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_text
from tunec.targets.registry import TARGETS

SPEC = """\
tunec: 1
model: llama-3.2-1b
method: lora
data: {train: train.jsonl, samples: 1000, sequence: 1024}
hardware: a100-80g-x8
train: {epochs: 1}
"""


def planned(target: str, more: str = ""):
    return tunec.plan(SPEC + more, targets=[target])


def test_a_requirement_decides_what_is_open():
    found = planned("deepspeed")
    assert found.ok
    assert found.plan["parallel.engine"] == "deepspeed"


@pytest.mark.parametrize(
    ("target", "more", "said"),
    [
        (
            "deepspeed",
            "engine: ddp\n",
            "needs parallel.engine deepspeed, but the spec requests ddp",
        ),
        ("simpletuner", "launcher: torchrun\n", "needs launch.launcher accelerate"),
        ("minicpm-v", "engine: none\n", "needs parallel.engine deepspeed"),
    ],
)
def test_a_field_that_says_otherwise_is_an_error(target, more, said):
    (found,) = [each for each in planned(target, more).diagnostics if each.id == "E0903"]
    assert said in found.message
    assert found.labels[0].span.line == 7


def test_a_field_that_says_the_same_is_fine():
    assert planned("deepspeed", "engine: deepspeed\n").ok


# ── what depends on the spec, or on what is decided already ──────────────────────────────────────

COOKBOOK = """\
tunec: 1
model: llama-3.2-3b
method: qlora
data: {train: samsum, samples: 1000, sequence: 1024}
hardware: a100-80g-x1
"""
VISUALGLM = """\
tunec: 1
model: visualglm-6b
method: {lora: {rank: 10}}
data: {train: dataset.json, samples: 100, sequence: 320, images: {per_sample: 1}}
hardware: v100-32g-x2
precision: fp16
"""


@pytest.mark.parametrize(("hardware", "engine"), [("a100-80g-x1", "none"), ("a100-80g-x8", "fsdp")])
def test_a_need_follows_the_devices(hardware, engine):
    """llama-cookbook runs one process, or its own FSDP: it has nothing between them."""
    found = tunec.compile(
        COOKBOOK.replace("a100-80g-x1", hardware).replace("qlora", "lora"),
        targets=["llama-cookbook"],
    )
    assert found.ok, [each.message for each in found.diagnostics]
    assert found.planned.plan["parallel.engine"] == engine
    assert ("--enable_fsdp True" in found.texts()["llama-cookbook/finetuning.sh"]) == (
        engine == "fsdp"
    )


@pytest.mark.parametrize(("precision", "casts"), [("bf16", False), ("fp16", True)])
def test_a_need_follows_what_another_pass_decided(precision, casts):
    """llama-cookbook runs autocast with fp16, and with nothing else."""
    loaded = load_text(f"{COOKBOOK}precision: {precision}\n")
    found = plan(loaded, [TARGETS.resolve("llama-cookbook")])
    assert found.ok, [each.message for each in found.diagnostics]
    assert found.plan["states.autocast"] is casts
    held = found.ledger.winner("states.autocast")
    assert (held.author, held.reason) == ("target", "target llama-cookbook needs it")
    assert plan(loaded).plan["states.autocast"] is True


def test_a_pin_of_the_spec_wins_over_a_need():
    found = tunec.plan(
        f"{COOKBOOK}precision: bf16\npin: {{states.autocast: true}}\n", targets=["llama-cookbook"]
    )
    assert found.plan["states.autocast"] is True
    assert found.ledger.winner("states.autocast").author != "target"


@pytest.mark.parametrize(
    ("train", "kind"),
    [
        ("{steps: 100}", "constant_with_warmup"),
        ("{steps: 100, schedule: cosine, warmup: {steps: 0}}", "cosine"),
    ],
)
def test_a_need_looks_at_what_the_spec_names(train, kind):
    """A schedule that begins with a warm-up must stay constant; another may be named."""
    found = tunec.plan(f"{VISUALGLM}train: {train}\n", targets=["visualglm"])
    assert found.ok, [each.message for each in found.diagnostics]
    assert found.plan["schedule.kind"] == kind


SDXL = """\
tunec: 1
model: sdxl-base-1.0
method: {method}
data: {{train: datasets/images, samples: 500, resolution: 1024}}
hardware: {hardware}
batch: {{global: {batch}}}
train: {{steps: 2000}}
targets: [simpletuner]
"""


@pytest.mark.parametrize(
    ("method", "hardware", "batch", "compute", "engine", "world"),
    [
        ("lora", "a100-80g-x1", 4, "bf16", "none", 1),
        ("lora", "kaggle-t4-x2", 4, "fp32", "ddp", 2),
        ("lora", "kaggle-t4-x2", 7, "fp32", "none", 1),
        ("lora", "lambda-v100-x8", 4, "fp32", "ddp", 4),
        ("full", "lambda-v100-x8", 8, "fp32", "deepspeed", 8),
        ("lora", "mi300x-x8", 8, "bf16", "ddp", 8),
    ],
)
def test_simpletuner_plans_what_simpletuner_runs(method, hardware, batch, compute, engine, world):
    compiled = tunec.compile(
        SDXL.format(method=method, hardware=hardware, batch=batch), targets=["simpletuner"]
    )
    assert compiled.ok, compiled.diagnostics
    decided = compiled.planned.plan
    assert (decided.precision.compute, decided.parallel.engine) == (compute, engine)
    assert decided.parallel.world == world


@pytest.mark.parametrize("more", ["precision: fp16\n", "engine: deepspeed\n"])
def test_what_the_spec_asks_of_simpletuner_is_refused_and_not_changed(more):
    compiled = tunec.compile(
        SDXL.format(method="lora", hardware="kaggle-t4-x2", batch=4) + more, targets=["simpletuner"]
    )
    assert [each.id for each in compiled.diagnostics] == ["E0905"]
