"""Judgements of public repositories are whole, and draws of findings follow their seed."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from false_alarms import draw, judged, lint, missing, place_of, rounds

from tunec.compiler.diagnostics.codes import is_code
from tunec.compiler.lints.index import is_rule, rule


def test_each_judgement_has_a_place_a_verdict_and_its_reason() -> None:
    known = rounds()
    for row in judged():
        assert row["verdict"] in ("true", "harmless", "false")
        assert len(row["reason"]) > 20
        assert row["commit"] == known[row["round"]]["repositories"][row["repository"]]
        assert row["line"] >= 1
        assert row["file"]
        assert is_rule(row["rule"]) or is_code(row["rule"])


_STILL_WARN = {
    "automatic-precision-off",
    "bf16-updates-lost",
    "clip-bounds-crossed",
    "flag-given-twice",
    "flags-without-effect",
    "interval-of-zero",
    "interval-without-strategy",
    "launcher-precision-differs",
    "limit-of-zero-checkpoints",
    "longer-than-context",
    "lora-reaches-vision-tower",
    "lora-target-unused",
    "nodes-without-hostfile",
    "optimizer-exchanged-on-offload",
    "more-workers-than-cores",
    "option-of-another-choice",
    "quantised-compute-differs",
    "reward-head-not-trained",
    "rewarded-setting-unread",
    "several-devices-in-one-process",
    "stage-3-keys-below-stage-3",
    "template-of-another-family",
    "turn-words-untrained",
    "vllm-keys-without-vllm",
}
"""Rules that were mostly not true when they were judged, and warn all the same: they ask for more
evidence since then, or cases are recorded in which a run is hurt."""


def test_a_silent_warning_that_is_mostly_not_true_is_a_note() -> None:
    verdicts: dict[str, list[bool]] = {}
    for row in judged():
        if row["severity"] == "warning" and is_rule(row["rule"]):
            verdicts.setdefault(row["rule"], []).append(row["verdict"] == "true")
    doubted = {
        name for name, true in verdicts.items() if len(true) > 2 and 2 * sum(true) < len(true)
    }
    silent = {name for name in doubted if rule(name).consequence in ("silent", "slow")}
    assert silent
    warns = {name for name in silent if rule(name).severity == "warning"}
    assert warns == _STILL_WARN & doubted


def test_a_round_judges_all_that_it_drew() -> None:
    for name, each in rounds().items():
        mine = [row for row in judged() if row["round"] == name]
        within = each.get("within", each["found"])
        wanted = {kind: min(each["drawn"][kind], within[kind]) for kind in each["drawn"]}
        assert Counter(row["severity"] for row in mine) == wanted
        assert len(each["repositories"]) >= 30


def test_no_repository_is_in_two_rounds() -> None:
    names = [name for each in rounds().values() for name in each["repositories"]]
    assert len(names) == len(set(names))


def _row(number: int, severity: str) -> dict[str, Any]:
    return {
        "repository": "a/b",
        "file": f"{number}.json",
        "line": number,
        "key": "key",
        "rule": "rule",
        "severity": severity,
        "message": "what is wrong",
    }


def test_a_draw_follows_its_seed_and_not_the_order_of_findings() -> None:
    rows = [_row(number, "warning") for number in range(50)] + [_row(1, "error")]
    wanted = {"warning": 10, "error": 5}
    first = list(draw(rows, 1, wanted))
    assert first == list(draw(reversed(rows), 1, wanted))
    assert first != list(draw(rows, 2, wanted))
    assert Counter(row["severity"] for row in first) == {"warning": 10, "error": 1}


def test_a_repository_is_linted_as_its_user_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a/b/configs").mkdir(parents=True)
    (tmp_path / "a/b/configs/ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimisation": {"stage": 2}}', "utf-8"
    )
    rows = lint("a/b", "0" * 40, tmp_path)
    assert {row["rule"] for row in rows} >= {"unknown-key"}
    assert {place_of(row)[1] for row in rows} == {"configs/ds.json"}
    assert missing({"a/b": "1", "c/d": "2"}, tmp_path) == ["c/d@2"]
    assert "a/b: 1 files, 1 runs" in capsys.readouterr().out
