"""`tunec rehearse` with real ranks: methods, ZeRO stages, offload, and files that disagree."""

import json
import os
from importlib.util import find_spec

import pytest
import yaml
from tests.rehearse.specs import SPEC

from tunec.compiler.cli.main import run
from tunec.compiler.rehearse import rank_processes
from tunec.targets.registry import REGISTRY

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "peft", "deepspeed", "trl")),
    reason="the consumers are not installed",
)

DDP = {"parallel.engine": "ddp"}
OFFLOADED = {"zero.offload_optimizer": "cpu"}


def zero(stage, **more):
    return {"parallel.engine": "deepspeed", "zero.stage": stage, **more}


@pytest.fixture
def spec(tmp_path):
    def write(method, pins):
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump(SPEC | {"method": method, "pin": pins}))
        return path

    return write


def rehearse(capsys, *arguments, steps=2):
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # other variables are another server's
    given = ["rehearse", *map(str, arguments), "--steps", str(steps), "--format", "json"]
    code = run(given, REGISTRY, "0")
    return code, json.loads(capsys.readouterr().out)


def by_slot(found):
    return {each["slot"] or each["key"]: each for each in found["checks"]}


def differing(found):
    return {slot: each for slot, each in by_slot(found).items() if each["status"] == "differs"}


CASES = {
    "full": ("full", DDP | {"activation_checkpointing.mode": "layer"}),
    "lora": ("lora", DDP),
    "lora-and-embeddings": ({"lora": {"also_train": ["embed_tokens"]}}, DDP),
    "zero0": ("full", zero(0)),
    "zero1": ("lora", zero(1, **{"activation_checkpointing.mode": "layer"})),
    "zero2": ("full", zero(2, **{"batch.accumulation": 3})),
    "zero3": ("full", zero(3)),
    "zero2-offload": ("full", zero(2, **OFFLOADED)),
    "zero3-lora": ("lora", zero(3)),
}


@pytest.mark.parametrize(("method", "pins"), CASES.values(), ids=CASES)
def test_what_runs_is_what_was_planned(method, pins, spec, capsys):
    code, found = rehearse(capsys, spec(method, pins))
    assert found["refused"] is None
    assert differing(found) == {}
    assert code == 0
    checks = by_slot(found)
    assert sum(each["status"] == "same" for each in checks.values()) > 25
    assert checks["parallel.world"]["found"] == 2
    assert checks["checkpoint loads again"]["status"] == "same"
    assert len(checks["optimizer.learning_rate"]["found"]) == 2
    engine_says = {slot: checks[slot]["found"] for slot in pins if slot in SAID}
    assert engine_says == {slot: SAID[slot](pins[slot]) for slot in engine_says}


def test_processes_started_anew_find_the_same(spec, capsys, monkeypatch, tmp_path):
    """As they are on a GPU, and where nothing is forked; nothing that lies here is imported."""
    path = spec(*CASES["zero1"])
    forked = rehearse(capsys, path)
    monkeypatch.setattr(rank_processes, "CAN_FORK", False)
    for name in ("torch", "tunec", "transformers", "deepspeed", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from here')", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert rehearse(capsys, path) == forked


QUANTISED = {
    "qlora": ("qlora", zero(2), "huggingface", "nf4"),
    "int8": ("int8_lora", DDP, "huggingface", "int8"),
    "sft-qlora": ("qlora", DDP, "trl", "nf4"),
}


@pytest.mark.parametrize(("method", "pins", "target", "form"), QUANTISED.values(), ids=QUANTISED)
def test_a_quantised_base_is_quantised_here_too(method, pins, target, form, spec, capsys):
    code, found = rehearse(capsys, spec(method, pins), "--target", target)
    assert found["refused"] is None
    assert differing(found) == {}
    assert code == 0
    stored = by_slot(found)["quantization.format"]
    if stored["status"] == "not rehearsed":
        pytest.skip(stored["reason"])
    assert stored["found"] == form


def test_trl_s_own_script_runs_as_planned(spec, capsys):
    code, found = rehearse(capsys, spec("lora", zero(3)), "--target", "trl")
    assert found["refused"] is None
    assert differing(found) == {}
    assert code == 0
    checks = by_slot(found)
    assert checks["zero.stage"]["found"] == 3
    assert checks["adapter.rank"]["status"] == "same"
    assert checks["checkpoint loads again"]["status"] == "same"


def test_preferences_are_trained_towards_as_planned(tmp_path, capsys):
    path = tmp_path / "spec.yaml"
    said = {"method": "full", "objective": {"dpo": {}}, "pin": zero(2)}
    path.write_text(yaml.safe_dump(SPEC | said))
    code, found = rehearse(capsys, path, "--target", "trl")
    assert found["refused"] is None
    assert differing(found) == {}
    assert code == 0
    checks = by_slot(found)
    named = {name: checks[f"objective.{name}"]["found"] for name in ("kind", "reference", "beta")}
    assert named == {"kind": "dpo", "reference": "resident", "beta": 0.1}
    assert checks["batch.micro"]["status"] == "same", "a pair is one sample"


def test_a_reward_model_is_trained_as_planned(tmp_path, capsys):
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC | {"method": "lora", "objective": "reward", "pin": DDP}))
    code, found = rehearse(capsys, path, "--target", "trl")
    assert found["refused"] is None
    assert differing(found) == {}
    assert code == 0
    checks = by_slot(found)
    assert checks["objective.kind"]["found"] == "reward"
    assert checks["adapter.trainable_parameters"]["status"] == "same", "the head is one of them"
    assert checks["batch.micro"]["status"] == "same", "a pair is one sample"


def test_a_file_of_trl_that_disagrees_with_the_plan_is_found_out(spec, capsys):
    path = spec("lora", DDP)
    out = path.parent / "out"
    assert run(["compile", str(path), "--target", "trl@1.16", "-o", str(out)], REGISTRY, "0") == 0
    capsys.readouterr()
    file = out / "trl" / "sft.yaml"
    said = yaml.safe_load(file.read_text()) | {"lora_r": 4, "max_grad_norm": 0.25}
    file.write_text(yaml.safe_dump(said))
    code, found = rehearse(capsys, path, "--target", "trl", "--files", out)
    wrong = differing(found)
    assert set(wrong) == {
        *("adapter.rank", "adapter.trainable_parameters", "optimizer.max_grad_norm")
    }
    assert (wrong["adapter.rank"]["expected"], wrong["adapter.rank"]["found"]) == (16, 4)
    assert code == 1


SAID = {
    "parallel.engine": str,
    "zero.stage": int,
    "zero.offload_optimizer": str,
    "batch.accumulation": lambda value: [value],
    "activation_checkpointing.mode": lambda value: value == "layer",
}


def compiled(path):
    out = path.parent / "out"
    targets = ["--target", "huggingface@5.23", "--target", "launch"]
    assert run(["compile", str(path), *targets, "-o", str(out)], REGISTRY, "0") == 0
    return out / "huggingface"


def test_files_that_disagree_with_the_plan_are_found_out(spec, capsys):
    path = spec("lora", zero(2))
    folder = compiled(path)
    capsys.readouterr()
    config = json.loads((folder / "ds_config.json").read_text())
    config["zero_optimization"]["stage"] = 1
    config["gradient_clipping"] = 0.25
    (folder / "ds_config.json").write_text(json.dumps(config))
    arguments = yaml.safe_load((folder / "training_args.yaml").read_text())
    arguments |= {"max_grad_norm": 0.25, "lr_scheduler_type": "linear", "seed": 7}
    (folder / "training_args.yaml").write_text(yaml.safe_dump(arguments))
    adapter = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(adapter | {"r": 4}))
    code, found = rehearse(capsys, path, "--files", folder.parent)
    assert found["refused"] is None
    wrong = differing(found)
    assert set(wrong) == {
        *("zero.stage", "optimizer.max_grad_norm", "schedule.kind", "runtime.seed"),
        *("adapter.rank", "adapter.trainable_parameters"),
    }
    assert (wrong["zero.stage"]["expected"], wrong["zero.stage"]["found"]) == (2, 1)
    assert code == 1


def test_a_run_that_raises_says_what(spec, capsys):
    path = spec("lora", zero(2))
    folder = compiled(path)
    capsys.readouterr()
    config = json.loads((folder / "ds_config.json").read_text())
    (folder / "ds_config.json").write_text(json.dumps(config | {"gradient_accumulation_steps": 7}))
    code, found = rehearse(capsys, path, "--files", folder.parent)
    assert code == 1
    assert found["checks"] == []
    assert "gradient_accumulation_steps" in found["refused"]


def test_a_run_that_takes_too_long_is_ended_and_the_next_one_runs(spec, capsys):
    path = spec(*CASES["lora"])
    code, found = rehearse(capsys, path, "--time-limit", "2", steps=20_000)
    assert (code, found["refused"]) == (1, "it took over 2 s")
    code, found = rehearse(capsys, path)
    assert (code, found["refused"]) == (0, None)
