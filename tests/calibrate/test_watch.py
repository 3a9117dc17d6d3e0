"""The probe of `watch: true`: what a bundle carries, what it writes, and where it stops a run."""

import importlib.util
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import tunec.compiler.watch

SPEC = {
    "tunec": 1,
    "name": "invoices",
    "model": "llama-3.2-1b-instruct",
    "method": "lora",
    "data": {"train": "train.jsonl", "samples": 100, "sequence": 512},
    "hardware": "a100-80g-x2",
    "watch": True,
}
LIVE = Path(tunec.compiler.watch.__file__).parent / "live/watch.py"


@pytest.fixture
def compiled(tunec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")

    def of(*targets, **changed):
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**SPEC, **changed}))
        named = [word for each in targets for word in ("--target", each)]
        return tunec("compile", "spec.yaml", *named, "-o", "out")

    return of


def test_a_bundle_starts_its_trainer_with_the_probe(compiled, tunec):
    assert compiled("trl").code == 0
    assert "watch/watch.py trl.scripts.sft --config trl/sft.yaml" in Path(
        "out/launch/launch.sh"
    ).read_text("utf-8")
    assert Path("out/watch/watch.py").read_text("utf-8") == LIVE.read_text("utf-8")
    kept = json.loads(Path("out/watch/plan.json").read_text("utf-8"))
    planned = json.loads(tunec("plan", "spec.yaml", "--format", "json", "--target", "trl").out)
    assert kept["expected"]["seconds"] == planned["time"]["terms"]
    assert kept["expected"]["tensors"] == planned["memory"]["gpu"]["peak_bytes"]
    assert kept["measured"] == "../a100-80g-x2.measured.yaml"


def test_a_script_of_the_user_s_is_started_with_the_probe(compiled):
    run = {"script": "train.py", "arguments": ["huggingface/training_args.yaml"]}
    assert compiled("huggingface", run=run).code == 0
    started = Path("out/launch/launch.sh").read_text("utf-8")
    assert "watch/watch.py ../train.py huggingface/training_args.yaml" in started


def test_a_trainer_that_it_cannot_be_put_into_is_named(compiled):
    done = compiled("axolotl")
    assert done.code == 0
    assert "note[watch-not-carried]: the bundle of axolotl" in done.err
    assert not Path("out/watch").exists()
    assert not any("watch" in each.read_text() for each in Path("out").rglob("*.sh"))


def test_what_the_probe_wrote_is_compared_with_the_plan_of_its_bundle(compiled, tunec):
    compiled("trl")
    lines = [
        {"event": "start", "when": "2026-11-24T10:00:00Z", "versions": {"torch": "2.9.0"}},
        *({"event": "step", "step": n, "seconds": t} for n, t in enumerate((9.0, 2.0, 2.1, 1.9))),
        {"event": "step", "step": 4, "seconds": 2.0, "allocated": 3 << 30, "reserved": 4 << 30},
    ]
    text = "\n".join(map(json.dumps, lines)) + '\n{"event": "st'
    Path("out/watch/run.jsonl").write_text(text)
    done = tunec("calibrate", "out")
    assert done.code == 0
    assert "2 s measured over 4 steps" in done.out
    (run,) = yaml.safe_load(Path("a100-80g-x2.measured.yaml").read_text())["runs"]
    assert run["versions"]["torch"] == "2.9.0"
    assert run["memory"]["allocated"] == 3 << 30


@pytest.mark.parametrize("named", ["../../a100-80g-x2.measured.yaml", "../notes.yaml"])
def test_a_bundle_writes_only_measured_runs_of_its_own_project(compiled, tunec, tmp_path, named):
    compiled("trl")
    kept = Path("out/watch/plan.json")
    kept.write_text(kept.read_text().replace("../a100-80g-x2.measured.yaml", named))
    line = {"event": "step", "step": 1, "seconds": 2.0}
    Path("out/watch/run.jsonl").write_text(json.dumps(line) + "\n")
    done = tunec("calibrate", "out")
    assert done.code in (1, 2)
    assert "outside the project" in done.err or "is no file of measured runs" in done.err
    assert not (tmp_path / "out" / named).resolve().exists()


@pytest.fixture
def probe(tmp_path, monkeypatch):
    """The probe's module, and a Trainer of a layer of two numbers with the probe in it."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    found = importlib.util.spec_from_file_location("watch_of_bundle", LIVE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    trainer = transformers.trainer
    monkeypatch.setattr(trainer, "DEFAULT_CALLBACKS", list(trainer.DEFAULT_CALLBACKS))
    monkeypatch.setattr(trainer.Trainer, "training_step", trainer.Trainer.training_step)

    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            self.calls = 0
            self.broken = 99

        def forward(self, x):
            self.calls += 1
            loss = self.layer(x).mean()
            return {"loss": loss / 0 if self.calls == self.broken else loss}

    def train(broken=99, steps=3):
        watch = module.Watch({"expected": {"allowed": 2 << 30}}, module.Records(tmp_path))
        module.install(watch)
        model = Line()
        model.broken = broken
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"),
            max_steps=steps,
            per_device_train_batch_size=1,
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
        )
        rows = [{"x": torch.ones(2)} for _ in range(4)]
        transformers.Trainer(model, arguments, train_dataset=rows).train()

    module.train = train
    module.lines = lambda: [
        json.loads(e) for e in (tmp_path / "run.jsonl").read_text().split("\n")[:-1]
    ]
    return module


needs_torch = pytest.mark.skipif(find_spec("transformers") is None, reason="no transformers")


@needs_torch
def test_each_step_of_a_real_trainer_is_written_down(probe):
    probe.train()
    lines = probe.lines()
    steps = [each for each in lines if each["event"] == "step"]
    assert [each["step"] for each in steps] == [1, 2, 3]
    assert all(each["seconds"] > 0 and each["host"] > 0 for each in steps)
    logged = [each for each in lines if each["event"] == "log" and "grad_norm" in each]
    assert [each["loss"] for each in logged] == pytest.approx(
        [each["loss"] for each in steps], abs=1e-3
    )
    assert lines[-1]["event"] == "end"


@needs_torch
def test_a_loss_that_is_no_number_ends_the_run_at_once(probe):
    with pytest.raises(SystemExit, match=r"stopped the run after step 2: the loss is -?(inf|nan)"):
        probe.train(broken=2)
    assert probe.lines()[-1]["event"] == "stop"
    assert probe.lines()[-2]["step"] == 2


@needs_torch
def test_more_memory_than_planned_ends_the_run_in_its_first_steps(probe, monkeypatch):
    monkeypatch.setattr(probe, "memory", lambda: {"allocated": 3 << 30})
    told = r"after step 1: 3.0 GiB of tensors, and the plan allows 2.0 GiB"
    with pytest.raises(SystemExit, match=told):
        probe.train()


def test_the_launcher_of_deepspeed_puts_its_rank_before_the_program(monkeypatch, tmp_path, capsys):
    found = importlib.util.spec_from_file_location("watch_of_bundle", LIVE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    script = tmp_path / "train.py"
    script.write_text("import sys; print(sys.argv[1:], __name__)")
    monkeypatch.setattr("sys.argv", ["watch.py"])
    monkeypatch.setattr("sys.path", ["here", *sys.path])
    module.start(["--local_rank=1", str(script), "--lr", "1"])
    assert capsys.readouterr().out == "['--local_rank=1', '--lr', '1'] __main__\n"
