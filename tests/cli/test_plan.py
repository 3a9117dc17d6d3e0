"""`tunec plan` and `tunec explain`: what they print, for people and for machines."""

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.cli.shell import EXAMPLES, FIVE, GLM, INFEASIBLE, MIXED

import tunec as library
from tunec.compiler.diagnostics.codes import known_codes
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.compiler.passes.pipeline import PIPELINE

# ── plan ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_plan_is_text_by_group(tunec):
    result = tunec("plan", FIVE, "--all")
    assert result.code == 0
    lines = result.out.splitlines()
    assert [line for line in lines if line in GROUPS] == list(GROUPS)
    assert any(line.startswith("memory of a device: ") for line in lines)
    assert any(line.startswith("memory of a node's host: ") for line in lines)
    assert any(line.startswith("time of a step: ") for line in lines)


def test_json_has_the_shape_that_the_design_fixes(tunec):
    found = tunec("plan", GLM, "--format", "json").json
    assert set(found) == {"plan", "decisions", "memory", "time", "diagnostics"}
    assert list(found["plan"]) == list(SLOTS)
    assert set(found["decisions"]) == set(SLOTS)
    for slot, decision in found["decisions"].items():
        assert decision["value"] == found["plan"][slot]
        assert set(decision) == {"value", "rank", "author", "reason", "rests", "beat"}
    gpu = found["memory"]["gpu"]
    assert {"peak_bytes", "budget_bytes", "terms"} <= set(gpu)
    assert gpu["budget_bytes"] == 72 * 2**30
    assert sum(gpu["terms"].values()) == pytest.approx(gpu["peak_bytes"], abs=len(gpu["terms"]))
    needs = gpu["peak_bytes"] + sum(gpu["margin"].values())
    assert needs == pytest.approx(gpu["required_bytes"], abs=len(gpu["margin"]) + 1)
    assert all(isinstance(value, int) for value in gpu["terms"].values())
    assert gpu["peak_bytes"] < gpu["reading_bytes"] <= found["plan"]["devices.memory"]
    assert "host" in found["memory"]
    assert {"step_seconds", "tokens_per_second", "terms"} <= set(found["time"])
    assert sum(found["time"]["terms"].values()) > 0


def test_json_of_a_diagnostic_has_the_shape_that_the_design_fixes(tunec):
    result = tunec("plan", INFEASIBLE, "--format", "json")
    assert (result.code, result.err) == (1, "")
    found = result.json
    assert found["plan"] is None
    (told,) = found["diagnostics"]
    assert set(told) >= {"id", "severity", "message", "labels", "notes", "help", "fix", "sum"}
    assert (told["id"], told["severity"]) == ("E0701", "error")
    (label,) = told["labels"]
    assert set(label) == {
        *("file", "line", "column", "end_line", "end_column", "text", "path", "primary")
    }
    assert label["path"] == "hardware"
    line = (EXAMPLES / "visualglm-6b-p100/spec.yaml").read_text("utf-8").splitlines()
    assert line[label["line"] - 1].startswith("hardware: p100-x1")
    assert told["sum"]


def test_results_and_diagnostics_keep_to_their_streams(tunec):
    result = tunec("plan", EXAMPLES / "glm-4v-9b-lora/all-query-key-value.yaml")
    assert result.code == 0
    assert "lora-reaches-vision" in result.err
    assert "warning[lora-reaches-vision]: " in result.out, "the screen names it"
    assert "-->" not in result.out
    assert "memory of a device" in result.out
    assert "memory of a device" not in result.err


def test_an_infeasible_spec_prints_no_plan(tunec):
    result = tunec("plan", INFEASIBLE)
    assert (result.code, result.out) == (1, "")
    assert "error[E0701]: nothing fits" in result.err
    assert "= sum: frozen weights" in result.err


@pytest.mark.parametrize("name", [each.name for each in PIPELINE])
def test_the_plan_after_a_pass_has_what_is_decided_by_then(tunec, name):
    result = tunec("plan", FIVE, "--emit", "plan", "--after", name, "--format", "json")
    assert result.code == 0
    at = [each.name for each in PIPELINE].index(name)
    groups = {group for each in PIPELINE[: at + 1] for group in each.decides}
    assert set(result.json["plan"]) == {slot for slot in SLOTS if SLOTS[slot].group in groups}


def test_the_plan_after_a_pass_as_text(tunec):
    result = tunec("plan", FIVE, "--emit", "plan", "--after", "choose-precision")
    assert result.code == 0
    assert "precision.compute                bf16" in result.out
    assert "batch.micro" not in result.out


def test_the_plan_after_a_pass_shows_also_where_nothing_fits(tunec):
    result = tunec("plan", INFEASIBLE, "--emit", "plan", "--after", "choose-precision")
    assert result.code == 1
    assert "precision.compute                fp32" in result.out


def test_an_unknown_pass_is_wrong_usage(tunec):
    result = tunec("plan", FIVE, "--emit", "plan", "--after", "fit-memory")
    assert result.code == 2
    assert "choose-precision" in result.err


def test_pins_and_budgets_come_from_the_command_line(tunec):
    result = tunec("plan", FIVE, "--format", "json", "--set", "pin.zero.stage=2")
    assert result.json["plan"]["zero.stage"] == 2
    assert result.json["decisions"]["zero.stage"]["rank"] == "PIN"
    result = tunec("plan", FIVE, "--format", "json", "--set", "budget.gpu_memory=40GiB")
    gpu = result.json["memory"]["gpu"]
    assert gpu["required_bytes"] <= gpu["budget_bytes"] == 40 * 2**30


# ── explain ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("slot", sorted(SLOTS))
def test_every_slot_can_be_explained(tunec, slot):
    result = tunec("explain", FIVE, slot)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{slot} = ")
    assert "decided by" in result.out
    found = tunec("explain", FIVE, slot, "--format", "json").json
    assert found["slot"] == slot
    assert found["definitions"][0]["value"] == found["value"]


def test_an_explanation_reaches_the_lines_it_rests_on(tunec):
    text = tunec("explain", MIXED, "adapter.rank").out
    assert "spec.yaml:7:16: method.lora.rank" in text


def test_an_explanation_names_the_fact_and_its_source(tunec):
    text = tunec("explain", MIXED, "precision.compute").out
    assert "device titan-rtx: precisions.fp16 = native" in text
    assert "NVIDIA" in text
    assert "└─ considered and rejected" in text
    assert "bf16: " in text


def test_what_was_rejected_has_its_sum(tunec):
    full = ("--set", "method=full", "--hardware", "a100-40g-x8")
    text = tunec("explain", FIVE, "parallel.engine", *full).out
    line = next(at for at in text.splitlines() if "DDP, checkpointing: needs " in at)
    needs = re.search(r"needs (\S+ GiB) of 39.4 GiB$", line)[1]
    assert f"{needs} = optimizer states " in text
    found = tunec("explain", FIVE, "zero.stage", *full, "--format", "json").json["considered"]
    states = {each["state"] for each in found}
    assert {"chosen", "fits", "device memory", "refused"} <= states
    for each in found:
        if each["state"] != "refused":
            assert sum(each["terms"].values()) == each["required_bytes"]
            over = each["required_bytes"] > 39.4 * 2**30
            assert over == (each["state"] == "device memory"), each["layout"]


def test_micro_batches_that_were_not_taken_are_told(tunec):
    values = ("--set", "method=full", "--set", "data.sequence=4096")
    asked = ("explain", FIVE, "batch.micro", *values, "--hardware", "a100-40g-x8")
    text = tunec(*asked).out
    chosen = int(re.match(r"batch.micro = (\d+)", text)[1])
    assert re.search(rf"─ {2 * chosen}: needs \S+ GiB of 39.4 GiB\n", text)
    found = tunec(*asked, "--format", "json").json["considered"]
    assert [each["micro"] for each in found if each["state"] == "chosen"] == [chosen]
    needs = [each["required_bytes"] for each in found]
    assert needs == sorted(needs)
    assert len(needs) > 1


def test_a_slot_that_is_not_searched_has_nothing_considered(tunec):
    found = tunec("explain", FIVE, "optimizer.name", "--format", "json").json
    assert found["considered"] == []


def test_a_pin_is_explained_with_what_it_overrules(tunec):
    text = tunec("explain", FIVE, "batch.micro", "--set", "pin.batch.micro=1").out
    assert text.startswith("batch.micro = 1\n")
    assert "pinned" in text
    assert "fit would have chosen " in text


def test_a_value_can_be_explained_although_nothing_fits(tunec):
    result = tunec("explain", INFEASIBLE, "precision.compute")
    assert result.code == 1
    assert result.out.startswith("precision.compute = fp32")
    assert "E0701" in result.err


@pytest.mark.parametrize("code", known_codes())
def test_every_code_can_be_explained(tunec, code):
    result = tunec("explain", code)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"# {code}: ")
    assert tunec("explain", code, "--format", "json").json["id"] == code


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["E0710"], "E0701"),
        (["nothing"], "SPEC SLOT"),
        ([FIVE, "zero.stag"], "zero.stage"),
        ([FIVE, ""], "there is no slot"),
    ],
)
def test_what_is_not_known_has_near_names(tunec, arguments, hint):
    result = tunec("explain", *arguments)
    assert (result.code, result.out) == (2, "")
    assert hint in result.err


def test_explaining_a_spec_that_is_wrong(tunec, tmp_path):
    (tmp_path / "spec.yaml").write_text(json.dumps({"tunec": 1}), "utf-8")
    result = tunec("explain", tmp_path / "spec.yaml", "zero.stage")
    assert (result.code, result.out) == (1, "")
    assert "error[E0" in result.err


def test_a_file_outside_of_the_project_is_read_where_that_is_allowed(tunec, tmp_path):
    (tmp_path / "team.yaml").write_text(Path(FIVE).read_text("utf-8"), "utf-8")
    (tmp_path / "project").mkdir()
    spec = tmp_path / "project/spec.yaml"
    spec.write_text("extends: ../team.yaml\nname: ours\n", "utf-8")
    refused = tunec("plan", spec)
    assert refused.code == 1
    assert refused.err.count("error[") == 1, "what the file would have said is not missed"
    assert "--allow-outside" in refused.err
    assert tunec("plan", spec, "--allow-outside").code == 0
    assert library.plan(spec, allow_outside=True).ok


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size"])
def test_a_config_of_an_impossible_size_is_refused_at_once(tunec, tmp_path, key):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", key: 10**12}))
    result = tunec("plan", FIVE, "--set", f"model={tmp_path}/config.json")
    assert (result.code, result.out) == (1, "")
    assert f"{key} is 1000000000000" in result.err
    assert "must be at most" in result.err


def test_a_folder_without_a_config_is_told_and_a_pipeline_has_that_of_its_denoiser(tunec, tmp_path):
    (tmp_path / "flux/transformer").mkdir(parents=True)
    spec = tmp_path / "spec.yaml"
    spec.write_text(Path(FIVE).read_text("utf-8"), "utf-8")
    absent = tunec("plan", spec, "--set", "model=flux")
    (tmp_path / "flux/transformer/config.json").write_text("{}")
    empty = tunec("plan", spec, "--set", "model=flux")
    assert (absent.code, empty.code) == (1, 1)
    assert "cannot read `config.json` in `flux`" in absent.err
    assert "cannot read" not in empty.err


def test_the_margin_is_called_by_what_the_devices_run(tunec):
    for hardware, names in (("mi210-x4", ("HIP", "RCCL")), ("gaudi2-x2", ("SynapseAI", "HCCL"))):
        text = tunec("plan", FIVE, "--hardware", hardware, "--all").out
        assert all(f"margin: {name}" in text for name in names)
        text += tunec("plan", FIVE, "--hardware", hardware).out
        assert f"{names[0]} context and {names[1]} " in text
        assert not re.search("CUDA|NCCL|nvidia-smi|cuBLAS", text)


def test_a_run_of_a_few_steps_is_told_and_one_step_is_no_warm_up(tunec):
    result = tunec("plan", FIVE, "--set", "data.samples=8", "--format", "json").json
    assert "few-samples" in {each["id"] for each in result["diagnostics"]}
    assert result["plan"]["schedule.steps"] == 1
    assert result["plan"]["schedule.warmup_steps"] == 0


def test_where_the_host_lacks_the_sum_is_the_hosts(tunec):
    options = ("--set", "model=llama-3.1-70b", "--set", "method=full")
    result = tunec("plan", FIVE, *options, "--format", "json")
    fault = next(d for d in result.json["diagnostics"] if d["id"] == "E0701")
    assert "that a node's host may give" in fault["message"]
    assert {term["name"] for term in fault["sum"]} >= {"offloaded optimizer states", "processes"}


def test_fields_at_odds_are_shown_where_they_stand(tunec):
    result = tunec("plan", FIVE, "--set", "train.steps=100", "--set", "train.warmup=500")
    assert result.code == 1
    assert result.err.count("said here") == 2


@pytest.mark.parametrize(
    ("override", "code", "words"),
    [
        (
            "method={lora: {targets: '('}}",
            "E0605",
            "'(' cannot be matched against names of modules",
        ),
        ("method={lora: {targets: []}}", "E0605", "none are named"),
        ("pin.devices.visible=[0]", "E0403", "a list that holds `0`"),
        ("budget.host_memory=1GiB", "E0701", "the run may take the whole host"),
    ],
)
def test_odd_values_are_refused_by_name(tunec, override, code, words):
    result = tunec("plan", FIVE, "--set", override)
    assert (result.code, result.out) == (1, "")
    assert f"error[{code}]" in result.err
    assert words in result.err


def test_a_number_of_processes_that_is_pinned_leaves_no_device_idle_unasked(tunec):
    result = tunec("plan", FIVE, "--set", "pin.parallel.world=4")
    assert (result.code, result.err) == (0, "")


def test_what_compiling_would_refuse_is_told_and_ends_in_an_error(tunec, tmp_path):
    spec = tmp_path / "spec.yaml"
    text = (
        "tunec: 1\nmodel: llama-3.2-1b\nmethod: lora\nhardware: a100-80g-x1\n"
        "data: {train: t.jsonl, samples: 10000, sequence: 512}\ntargets: [trl, kubeflow]\n"
    )
    spec.write_text(text, "utf-8")
    found = tunec("plan", spec)
    assert found.code == tunec("compile", spec, "-o", tmp_path / "out").code == 1
    assert "nothing brings t.jsonl into a pod" in found.out
    assert "fits" in found.out


@pytest.mark.parametrize(
    "given", ["--target=trl", *(f"--set=objective={name}" for name in ("sft", "dpo", "reward"))]
)
def test_what_a_plan_recommends_next_can_be_typed(given, tunec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_bytes(Path(FIVE).read_bytes())
    said = tunec("plan", "spec.yaml", "--hardware", "a100-80g-x2", given).out
    commands = re.findall(r"tunec (.+)", said.replace("\\\n", " ").partition("next ")[2])
    assert len(commands) > 1
    for command in commands:
        result = tunec(*shlex.split(command))
        assert result.code == 0, (command, result.err)


def test_a_word_may_stand_behind_the_options(tunec):
    ahead = tunec("explain", FIVE, "batch.micro", "--target", "trl")
    behind = tunec("explain", FIVE, "--target", "trl", "batch.micro")
    assert (behind.code, behind.out) == (0, ahead.out), behind.err
    beyond = tunec("explain", FIVE, "--target", "trl", "batch.micro", "batch.global")
    assert beyond.code == 2
    assert "there is no argument 'batch.global' here" in beyond.err
