"""A data set card whose files are not the plan's, before the real `datasets`."""

import json

import pytest

from tunec.compiler.cli.main import run
from tunec.targets.registry import REGISTRY

SPEC = """\
tunec: 1
model: llama-3.2-1b
method: lora
data: {train: [a.jsonl, {path: b.jsonl, times: 2}], samples: 1000, sequence: 1024}
hardware: a100-80g-x1
targets: [trl]
"""
CARD = "trl/dataset/README.md"
EDITS = {
    "as planned": (lambda lines: lines, "same", set()),
    "a file that is not there": (
        lambda lines: [each.replace("a.jsonl", "c.jsonl") for each in lines],
        "refused",
        {"data.train"},
    ),
    "another file first": (
        lambda lines: [each.replace("a.jsonl", "b.jsonl") for each in lines],
        "differs",
        {"data.train"},
    ),
    "one time less": (
        lambda lines: [*lines[: _last(lines)], *lines[_last(lines) + 1 :]],
        "differs",
        {"data.more"},
    ),
}


def _last(lines):
    """The line of the last file of the card."""
    return max(at for at, each in enumerate(lines) if "b.jsonl" in each)


@pytest.mark.parametrize("edit", EDITS)
def test_a_card_names_the_files_of_the_plan(edit, tmp_path, capsys):
    change, status, slots = EDITS[edit]
    spec, out = tmp_path / "spec.yaml", tmp_path / "out"
    spec.write_text(SPEC)
    assert run(["compile", str(spec), "-o", str(out)], REGISTRY, "0") == 0
    lines = (out / CARD).read_text().splitlines(keepends=True)
    (out / CARD).write_text("".join(change(lines)))
    capsys.readouterr()
    code = run(["verify", str(out), "--spec", str(spec), "--format", "json"], REGISTRY, "0")
    checks = json.loads(capsys.readouterr().out)["checks"]
    (card,) = [each for each in checks if each["artifact"].endswith(CARD)]
    if card["status"] == "unchecked":
        pytest.skip(f"not checked: {card['reason']}")
    assert {each["slot"] for each in card["differences"]} == slots
    assert card["status"] == status
    assert bool(code) == bool(slots)
