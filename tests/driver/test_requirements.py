"""What a target needs holds or is an error, and paths that a script's start loses are told of."""

import json

import pytest

import tunec
from tunec.compiler.bundle import Outset
from tunec.compiler.driver import compile_spec, plan
from tunec.compiler.frontend.load import load_spec, load_text
from tunec.targets.registry import REGISTRY, TARGETS

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
        ("full", "lambda-v100-x8", 8, "fp32", "fsdp", 8),
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
        SDXL.format(method="lora", hardware="kaggle-t4-x2", batch=2) + more, targets=["simpletuner"]
    )
    assert [each.id for each in compiled.diagnostics] == ["E0905"]


ID = "script-paths-elsewhere"
TRAINED = "rows/train.jsonl"


def told(folder, text, spec="..", script="mine/train.py"):
    """What compiling says of a script in a project with data."""
    data = {"train": TRAINED, "samples": 5000, "sequence": 1024}
    said = {"tunec": 1, "model": "llama-3.2-1b", "method": "full", "data": data}
    run = {"run": {"script": script, "arguments": ["huggingface/training_args.yaml"]}}
    for name, content in {script: text, TRAINED: "{}", "mine/held.jsonl": "{}"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")
    (folder / "spec.json").write_text(json.dumps({**said, **run, "hardware": "h100-80g-x1"}))
    asked = [REGISTRY.resolve("huggingface")]
    found = compile_spec(
        load_spec(folder / "spec.json"), asked, Outset(spec, REGISTRY.resolve("launch"))
    )
    return [each.message for each in found.diagnostics if each.id == ID]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f'load_dataset("json", data_files="{TRAINED}")', TRAINED),
        (f'load_dataset("json", data_files={{"train": ["./{TRAINED}"]}})', f"./{TRAINED}"),
        ('open("held.jsonl")', "held.jsonl"),
        ('open("../rows/train.jsonl")', "../rows/train.jsonl"),
    ],
)
def test_a_path_that_holds_from_the_project_or_the_script_is_named(tmp_path, text, named):
    assert told(tmp_path, text) == [
        f"mine/train.py names {named}, and run.sh starts it in the bundle's folder"
    ]


@pytest.mark.parametrize(
    "text",
    [
        'load_dataset("json", data_files="nowhere/train.jsonl")',
        f'open(Path(__file__).parent / "{TRAINED}")',
        f'open(os.path.join(HERE, "{TRAINED}"))',
        f'parser.add_argument("--data", default="{TRAINED}")',
        'AutoModel.from_pretrained("rows")',
        "load(sys.argv[1])",
        "def broken(:",
        'open("/etc/passwd"); open("../../../etc/passwd")',
    ],
)
def test_what_may_hold_is_left_alone(tmp_path, text):
    assert told(tmp_path, text) == []


def test_a_bundle_in_the_folder_of_the_spec_loses_nothing(tmp_path):
    text = f'open("{TRAINED}")'
    assert told(tmp_path, text, spec=".") == []
    assert told(tmp_path, text, spec="..")
