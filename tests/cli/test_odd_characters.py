"""What a spec says moves no terminal and turns no text around, through whichever door it leaves."""

import pytest
from tests.small_spec import SPEC

WRITTEN = r"a\e[31m\a\x7f\N\u202e\u2066b\nc"
ODD = {*map(chr, (*range(9), *range(11, 32), *range(0x7F, 0xA0), 0x202E, 0x2066))}
FLEET = "fleet: 1\nspecs: spec.yaml\nclusters: [a100-80g-x8]\ntargets: [huggingface, launch]\n"
REFUSED = {
    "pin.launch.script": "pin: {launch.script: ODD}",
    "pin.runtime.output": "pin: {runtime.output: {value: ODD, reason: agreed}}",
    "pin.adapter.targets[1]": "pin: {adapter.targets: [q_proj, ODD]}",
    "extra.huggingface.run_name": "extra: {huggingface: {run_name: ODD}}",
    "extra.huggingface": "extra: {huggingface: {ODD: 1}}",
    "software": "software: {ODD: 1.0.0}",
    "run.arguments[0]": "run: {script: train.py, arguments: [ODD]}",
}
TOLD = (
    ("plan", "spec.yaml"),
    ("plan", "spec.yaml", "--all"),
    ("plan", "spec.yaml", "--after", "fit"),
    ("plan", "spec.yaml", "--format", "json"),
    ("explain", "spec.yaml", "zero.stage"),
    ("compile", "spec.yaml", "--target", "huggingface", "--target", "launch", "-o", "out"),
    ("report", "spec.yaml", "-o", "page.html"),
    ("diff", "old.yaml", "spec.yaml"),
    ("diff", "old.yaml", "spec.yaml", "--format", "markdown"),
    ("diff", "old.yaml", "spec.yaml", "--format", "json"),
    ("fleet", "fleet.yaml", "-o", "tree"),
    ("report", "tree", "-o", "fleet.html"),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(FLEET, "utf-8")
    (tmp_path / "old.yaml").write_text(SPEC, "utf-8")
    return tmp_path


def saying(line):
    return f"{SPEC}{line.replace('ODD', f'{chr(34)}{WRITTEN}{chr(34)}')}\n"


@pytest.mark.parametrize(("place", "line"), REFUSED.items())
def test_a_text_that_goes_into_files_is_refused(place, line, folder, tunec):
    (folder / "spec.yaml").write_text(saying(line), "utf-8")
    done = tunec("plan", "spec.yaml")
    assert done.code == 1
    assert f"error[E0306]: `{place}" in done.err
    assert not set(done.out + done.err) & ODD


def test_a_reason_is_told_with_its_characters_made_visible(folder, tunec):
    reasons = "pin: {zero.stage: {value: 2, reason: ODD}}\nallow: {few-steps: ODD}"
    (folder / "spec.yaml").write_text(saying(reasons), "utf-8")
    for words in TOLD:
        done = tunec(*words)
        assert done.code == 0, done.err
        assert not set(done.out + done.err) & ODD, words
    assert "␛[31m" in tunec("explain", "spec.yaml", "zero.stage").out
    written = [each for each in folder.rglob("*") if each.is_file()]
    assert len(written) > len(TOLD)
    assert [each for each in written if set(each.read_text("utf-8")) & ODD] == []
