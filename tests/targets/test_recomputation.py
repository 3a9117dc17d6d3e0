"""Segments, gaps and offloaded activations, in the words of the trainers that have them."""

from collections.abc import Mapping
from typing import Any

import pytest
from packaging.version import Version
from tests.plans import plan_of
from tests.targets.test_simpletuner import FLUX_LORA

from tunec.compiler.emit import emit
from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_plain, read
from tunec.compiler.target import Target
from tunec.targets.registry import TARGETS

SLOTS = tuple(f"activation_checkpointing.{name}" for name in ("segment", "gap", "offload"))
GROUP = "gradient_checkpointing"


def changed(segment: int = 1, gap: int = 0, offload: bool = False) -> dict[str, Any]:
    values = dict(zip(SLOTS, (segment, gap, offload), strict=True))
    return {"activation_checkpointing.mode": "layer", **values}


def said(target: Target, plan: Plan, release: str, file: str) -> tuple[Mapping[str, Any], set[str]]:
    """What a file says, and the slots that are lost."""
    artifacts, faults = emit(target, plan, Version(release))
    lost = {label.path for each in faults if each.severity == "error" for label in each.labels}
    return next((each.values for each in artifacts if each.name == file), {}), lost


SIMPLETUNER = [
    ("3.1.6", (1, 3), {"interval": 4}),
    ("4.5", (1, 1), {"interval": 2}),
    ("4.6", (4, 0), {"interval": 4}),
    ("4.10", (2, 3), {"interval": 2, "segment_stride": 5}),
    ("4.10", (1, 0), {}),
]


@pytest.mark.parametrize(("release", "split", "keys"), SIMPLETUNER)
def test_simpletuner_says_segments_as_its_release_runs_them(release, split, keys):
    target = TARGETS["simpletuner"]
    version = str(target.release(release))
    plan = Plan.of({**FLUX_LORA, **changed(*split)})
    values, lost = said(target, plan, version, "config/config.json")
    assert not lost & set(SLOTS)
    found = {k: v for k, v in values.items() if k.startswith(f"{GROUP}_")}
    assert found == {f"{GROUP}_{name}": value for name, value in keys.items()}
    back = read(target, {"config/config.json": found_plain(values)}, Version(version))
    slots = {each.slot: each.value for each in sorted(back, key=lambda each: each.rank)}
    assert tuple(slots[slot] for slot in SLOTS[:2]) == split


@pytest.mark.parametrize(
    ("release", "split"), [("3.1.6", (2, 0)), ("4.5", (4, 4)), ("4.6", (1, 1)), ("4.10", (1, 3))]
)
def test_simpletuner_has_no_word_for_the_others_segments(release, split):
    target = TARGETS["simpletuner"]
    plan = Plan.of({**FLUX_LORA, **changed(*split)})
    _, lost = said(target, plan, str(target.release(release)), "config/config.json")
    assert lost & set(SLOTS)


@pytest.mark.parametrize(
    ("name", "release", "file", "key", "changes"),
    [
        ("simpletuner", "4.0", "config/config.json", f"{GROUP}_backend", FLUX_LORA),
        ("trl", "0.19", "sft.yaml", "activation_offloading", {}),
        ("trl", "1.16", "sft.yaml", "activation_offloading", {}),
    ],
)
def test_what_is_kept_on_the_host_is_said(name, release, file, key, changes):
    target = TARGETS[name]
    path = "chunked" if release == "1.16" else "full"
    version = str(target.release(release))
    for offload in (True, False):
        named = {"data.train": "org/set", "loss.path": path}
        plan = plan_of(named, changed(offload=offload))
        if changes:
            plan = Plan.of({**changes, **changed(offload=offload)})
        values, lost = said(target, plan, version, file)
        assert SLOTS[2] not in lost
        assert (key in values) is offload


@pytest.mark.parametrize(
    ("name", "release"), [("simpletuner", "3.3"), ("trl", "0.17"), ("huggingface", "5.23")]
)
def test_a_release_that_moves_nothing_refuses_by_name(name, release):
    target = TARGETS[name]
    plan = plan_of({"data.train": "org/set"}, changed(offload=True))
    if name == "simpletuner":
        plan = Plan.of({**FLUX_LORA, **changed(offload=True)})
    _, lost = said(target, plan, str(target.release(release)), "")
    assert SLOTS[2] in lost


def test_dpo_moves_since_0_29_and_grpo_never():
    dpo = {"objective.kind": "dpo", "objective.loss": "sigmoid", "objective.reference": "base"}
    plan = plan_of({"data.train": "org/set", "objective.beta": 0.1}, dpo, changed(offload=True))
    target = TARGETS["trl"]
    for release, moves in (("0.28", False), ("0.29.1", True), ("1.16", True)):
        values, lost = said(target, plan, str(target.release(release)), "dpo.yaml")
        assert ("activation_offloading" in values) is moves
        assert (SLOTS[2] in lost) is not moves


def test_visualglm_chunks_layers_and_its_engine_keeps_them_on_the_host():
    target = TARGETS["visualglm"]
    rows = {slot: entry for file in target.files for entry in file.entries for slot in entry.slots}
    plan = plan_of(changed(segment=4, offload=True))
    assert list(rows[SLOTS[0]].write(plan).values()) == [4]
    key = "activation_checkpointing.cpu_checkpointing"
    assert rows[SLOTS[2]].write(plan) == {key: True}
    assert rows[SLOTS[2]].write(plan_of(changed())) == {}
    assert rows[SLOTS[2]].read({key: True}) == {SLOTS[2]: True}
