"""`tunec calibrate`, and what plans, lint and fleets then take from its file."""

import json

import pytest
import yaml
from tests.calibrate import logs

from tunec.compiler.analyses.time.pace import scaled

SPEC = """\
tunec: 1
name: invoices
model: llama-3.1-8b
method: lora
data: {train: train.jsonl, sequence: 2048, samples: 10000}
hardware: a100-80g-x8
pin: {batch.micro: 2, activation_checkpointing.mode: none}
"""
FILE = "a100-80g-x8.measured.yaml"


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "train.log").write_text(logs.TRAINER)
    (tmp_path / "smi.csv").write_text(
        "timestamp, memory.used [MiB]\n2026/11/24 10:00:00, 70000 MiB\n"
    )
    stats = {"allocated_bytes.all.peak": 60 << 30, "reserved_bytes.all.peak": 64 << 30}
    (tmp_path / "memory_stats.json").write_text(json.dumps(stats))
    return tmp_path


def planned(tunec, *words):
    done = tunec("plan", "spec.yaml", "--format", "json", *words)
    return json.loads(done.out)


PROBED = """\
{{"event": "start", "when": "2026-11-24T10:00:00Z", "ranks": {ranks}, "versions": {{}}}}
{{"event": "train", "step": 0, "device": "{device}"}}
{{"event": "step", "step": 1, "seconds": 3.0}}
{{"event": "step", "step": 2, "seconds": 3.0}}
"""


@pytest.mark.parametrize(
    ("device", "ranks", "why"),
    [
        ("cpu", 8, "it ran on a CPU, and the plan on a100-80g-x8"),
        ("NVIDIA A100-SXM4-80GB", 1, "it had 1 rank, and the plan has 8"),
        ("NVIDIA A100-SXM4-80GB", 8, ""),
    ],
)
def test_a_run_on_other_devices_teaches_nothing(tunec, project, device, ranks, why):
    (project / "run.jsonl").write_text(PROBED.format(device=device, ranks=ranks))
    done = tunec("calibrate", "spec.yaml", "run.jsonl")
    assert done.code == bool(why)
    assert why in done.err
    assert ("start the bundle on them" in done.err) == (device == "cpu")
    assert (project / FILE).exists() != bool(why)
    assert "no file says on what it ran" not in done.err


def test_a_run_that_does_not_say_its_devices_is_told_as_such(tunec, project):
    done = tunec("calibrate", "spec.yaml", "train.log")
    assert "no file says on what it ran: it is taken as a run on a100-80g-x8" in done.err


@pytest.mark.parametrize("took", ["0.0001", "99.0", "310000000.0", "1e300"])
def test_a_run_of_another_plan_teaches_nothing(tunec, project, took):
    text = "{'loss': 1.0}\n{'train_runtime': 9.0, 'train_steps_per_second': %.9g}\n"
    (project / "other.log").write_text(text % (1 / float(took)))
    done = tunec("calibrate", "spec.yaml", "other.log")
    assert done.code == 1
    assert "error[E0201]: `other.log` shows no run of this plan: a step took " in done.err
    assert not (project / FILE).exists()


def test_a_run_is_compared_and_later_plans_take_what_follows(tunec, project):
    before = planned(tunec)
    assert "measured" not in before
    done = tunec("calibrate", "spec.yaml", ".")
    assert done.code == 0
    assert "3 s measured over 99 steps" in done.out
    assert "tensors  60.0 GiB at most" in done.out
    assert "counts little until another run agrees" in done.out
    assert planned(tunec)["time"]["step_seconds"] == pytest.approx(3.0, rel=1e-3)  # it ran
    taught = yaml.safe_load((project / FILE).read_text())
    terms, pace = taught["runs"][0]["seconds"]["accounted"], tuple(taught["factors"].items())
    assert sum(scaled(terms, pace).values()) < 1.2 * sum(terms.values())  # for all other plans
    (project / "train.log").write_text(logs.TRAINER.replace("05:06", "05:07"))
    done = tunec("calibrate", "spec.yaml", ".")
    assert "until another run agrees" not in done.out
    after = planned(tunec)
    assert after["time"]["step_seconds"] == pytest.approx(3.0, rel=0.1)
    assert after["time"]["step_seconds"] > 1.2 * before["time"]["step_seconds"]
    gpu = after["memory"]["gpu"]
    assert gpu["peak_bytes"] == before["memory"]["gpu"]["peak_bytes"]
    assert gpu["required_bytes"] > before["memory"]["gpu"]["required_bytes"]
    assert gpu["margin"]["outside the allocator, as measured"] == (70000 << 20) - (64 << 30)
    assert after["measured"]["runs"] == 2
    assert "by 2 measured runs" in tunec("plan", "spec.yaml").out
    assert (
        "time and margin as runs on this cluster" in tunec("explain", "spec.yaml", "zero.stage").out
    )


def test_a_run_counts_once_and_the_terms_stay_those_of_the_account(tunec, project):
    tunec("calibrate", "spec.yaml", ".")
    first = (project / FILE).read_text()
    tunec("calibrate", "spec.yaml", "train.log", "smi.csv", "memory_stats.json")
    (project / "train.log").write_text(logs.TRAINER.replace("05:06", "05:16"))
    tunec("calibrate", "spec.yaml", ".")
    second = yaml.safe_load((project / FILE).read_text())
    terms = [each["seconds"]["accounted"] for each in second["runs"]]
    assert terms[0] == terms[-1] == yaml.safe_load(first)["runs"][0]["seconds"]["accounted"]
    tunec("calibrate", "spec.yaml", ".")
    assert yaml.safe_load((project / FILE).read_text()) == second


def test_numbers_are_worked_out_anew_when_a_run_is_removed(tunec, project):
    tunec("calibrate", "spec.yaml", ".")
    one = yaml.safe_load((project / FILE).read_text())
    (project / "train.log").write_text(logs.TRAINER.replace("05:06", "05:07"))
    tunec("calibrate", "spec.yaml", ".")
    two = yaml.safe_load((project / FILE).read_text())
    assert two["factors"] != one["factors"]
    (project / FILE).write_text(yaml.safe_dump({**two, "runs": two["runs"][:1]}))
    assert tunec("calibrate", FILE).code == 0
    assert yaml.safe_load((project / FILE).read_text()) == one


def test_an_older_account_s_factors_are_not_used(tunec, project):
    tunec("calibrate", "spec.yaml", "train.log")
    text = (
        (project / FILE).read_text().replace("    steps: 99\n", "    steps: 99\n    edition: 0\n")
    )
    (project / FILE).write_text(text)
    found = planned(tunec)
    assert found["measured"]["factors"] == {}
    assert "of an older time account" in tunec("plan", "spec.yaml").out


def test_an_edited_margin_is_refused_with_its_place(tunec, project):
    tunec("calibrate", "spec.yaml", ".")
    text = (project / FILE).read_text()
    (project / FILE).write_text(text.replace("several: ", "several: 1 # "))
    done = tunec("plan", "spec.yaml")
    assert done.code == 1
    assert "margin.beside.several is 1, and a run had" in done.err
    assert FILE in done.err


def test_every_file_that_shows_nothing_is_named_and_nothing_is_written(tunec, project):
    done = tunec("calibrate", "spec.yaml", "missing.log", "spec.yaml", "train.log")
    assert done.code == 1
    assert "cannot use `missing.log`: there is no such file" in done.err
    assert "cannot use `spec.yaml`: nothing in it shows time or memory" in done.err
    (project / "bundle").mkdir()
    (project / "bundle/run.sh").touch()
    done = tunec("calibrate", "spec.yaml", "bundle")
    assert (done.code, "help: run it first: `bash bundle/run.sh`" in done.err) == (1, True)
    assert tunec("calibrate", "spec.yaml", "train.log", "--dry-run").code == 0
    assert not (project / FILE).exists()


def test_a_cluster_s_own_file_has_it_beside_it_and_lint_and_fleets_read_it(tunec, project):
    (project / "clusters").mkdir()
    lab = {
        "name": "lab",
        "nodes": [
            {
                "accelerators": [{"device": "a100-sxm4-80g", "count": 8}],
                "host": {"memory": "1TiB", "cores": 64},
            }
        ],
    }
    (project / "clusters/lab.yaml").write_text(yaml.safe_dump(lab))
    (project / "spec.yaml").write_text(SPEC.replace("a100-80g-x8", "clusters/lab.yaml"))
    (project / "fleet.yaml").write_text(
        "fleet: 1\nspecs: [spec.yaml]\nclusters: ['clusters/*.yaml']\ntargets: [deepspeed]\n"
    )
    assert tunec("fleet", "fleet.yaml", "-o", "out").code == 0
    assert tunec("fleet", "fleet.yaml", "-o", "out", "--check").code == 0
    assert tunec("calibrate", "spec.yaml", ".").code == 0
    assert (project / "clusters/lab.measured.yaml").is_file()
    assert tunec("fleet", "fleet.yaml", "-o", "out", "--check").code == 1
    assert tunec("fleet", "fleet.yaml", "-o", "out").code == 0
    (project / "args.yaml").write_text(
        "output_dir: out\nper_device_train_batch_size: 1\nmax_length: 2048\nbf16: true\n"
        "gradient_checkpointing: true\nmodel_name_or_path: meta-llama/Llama-3.1-8B\n"
        "dataset_name: d\n"
    )
    (project / "launch.sh").write_text("torchrun --nproc_per_node=8 train.py --config args.yaml\n")
    said = tunec("lint", "args.yaml", "launch.sh", "--hardware", "clusters/lab.yaml").out
    assert "near the limit: " in said
    assert "outside the allocator, as measured 4.4 GiB" in said
