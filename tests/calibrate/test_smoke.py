"""`compile --smoke`: the short bundle beside a bundle, and what its records show."""

import json
from pathlib import Path

import pytest
import yaml

from tunec.compiler.calibrate.smoke import judged

SPEC = {
    "tunec": 1,
    "name": "invoices",
    "model": "llama-3.2-1b-instruct",
    "method": "lora",
    "data": {"train": "train.jsonl", "evaluation": "held.jsonl", "samples": 10000, "sequence": 512},
    "hardware": "a100-80g-x2",
    "train": {"epochs": 2, "output": "runs/one"},
    "targets": ["trl"],
}


@pytest.fixture
def compiled(tunec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")

    def of(*words, **changed):
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**SPEC, **changed}))
        return tunec("compile", "spec.yaml", *words)

    return of


def test_the_short_bundle_is_the_long_one_but_for_its_length(compiled):
    assert compiled("-o", "out", "--smoke").code == 0
    long, short = (
        yaml.safe_load(Path(folder, "trl/sft.yaml").read_text("utf-8"))
        for folder in ("out", "out/smoke")
    )
    changed = {key for key in long.keys() | short.keys() if long.get(key) != short.get(key)}
    assert changed == {
        *("max_steps", "num_train_epochs", "save_steps", "save_total_limit", "eval_steps"),
        *("logging_steps", "output_dir", "warmup_steps"),
    }
    assert (short["max_steps"], short["save_steps"], short["eval_steps"]) == (2, 1, 2)
    assert short["output_dir"] == "../../runs/one-smoke"
    run = Path("out/smoke/run.sh").read_text("utf-8")
    assert [line for line in run.splitlines() if line.startswith("TUNEC")] == [
        'TUNEC_SMOKE=first bash launch/launch.sh "$@"',
        'TUNEC_SMOKE=resumed bash launch/launch.sh "$@"',
    ]
    must = json.loads(Path("out/smoke/watch/plan.json").read_text("utf-8"))["must_show"]
    assert list(must) == ["steps", "memory", "evaluation", "save", "resume"]
    assert all(text in run for text in must.values())
    assert compiled("-o", "out", "--smoke", "--check").code == 0


def test_what_cannot_be_shortened_is_refused_and_nothing_is_written(compiled):
    assert compiled("--smoke").code == 2
    done = compiled("-o", "out", "--smoke", targets=["axolotl"])
    assert done.code == 2
    assert "--smoke needs a trainer that takes the probe" in done.err
    assert not Path("out").exists()


def records(**changed):
    first = [
        {"event": "start", "smoke": "first"},
        {"event": "train", "step": 0},
        {"event": "step", "step": 1, "loss": 2.0, "allocated": 90},
        {"event": "step", "step": 2, "loss": changed.get("loss", 1.5), "allocated": 95},
        {"event": "evaluate", "step": 2},
        {"event": "save", "step": 2},
    ]
    again = [
        {"event": "start", "smoke": "resumed"},
        {"event": "train", "step": changed.get("after", 1)},
        {"event": "step", "step": 2, "loss": changed.get("again", 1.5001), "allocated": 99},
        {"event": "save", "step": 2},
    ]
    return [*first, *again[: changed.get("until")]]


MUST = dict.fromkeys(("steps", "memory", "evaluation", "save", "resume"), "")


@pytest.mark.parametrize(
    ("changed", "allowed", "wrong"),
    [
        ({}, 100, {}),
        ({}, 98, {"memory": "failed"}),
        ({"loss": "nan"}, 100, {"steps": "failed", "resume": "not seen"}),
        ({"again": 1.7}, 100, {"resume": "failed"}),
        ({"after": 0}, 100, {"resume": "failed"}),
        ({"until": 0}, 100, {"resume": "not seen"}),
    ],
)
def test_each_check_is_judged_by_the_records(changed, allowed, wrong):
    found = {each.name: each.verdict for each in judged(MUST, allowed, records(**changed))}
    assert found == {**dict.fromkeys(MUST, "ok"), **wrong}


def test_a_run_that_did_not_show_it_ends_calibrate_with_1(compiled, tunec):
    compiled("-o", "out", "--smoke")
    lines = [{**each, "seconds": 1.0} if each["event"] == "step" else each for each in records()]
    record = Path("out/smoke/watch/run.jsonl")
    record.write_text("\n".join(map(json.dumps, lines)))
    done = tunec("calibrate", "out/smoke")
    assert done.code == 0
    assert "ok        step 2 once more from the checkpoint of step 1" in done.out
    record.write_text("\n".join(map(json.dumps, lines[:5])))
    done = tunec("calibrate", "out/smoke")
    assert done.code == 1
    assert "not seen  a checkpoint after step 2" in done.out
