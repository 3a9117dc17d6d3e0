"""Several files or data sets to train on: what a plan counts, what each target says or refuses."""

import pytest
from planning import decided

import tunec
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.load import load_text
from tunec.compiler.ir.plan import training_data

SPEC = """\
tunec: 1
model: llama-3.1-8b
method: lora
data: {{train: {train}, {more}samples: 6400, sequence: 1024}}
hardware: a100-80g-x1
batch: {{global: 32}}
targets: ['{target}']
"""
TWICE = "[a.jsonl, {path: b.jsonl, times: 2}]"


def compiled(train, target="trl", more=""):
    return tunec.compile(SPEC.format(train=train, target=target, more=more), targets=[target])


def faults(found) -> dict[str, Diagnostic]:
    return {each.id: each for each in found.diagnostics if each.severity == "error"}


def test_each_part_is_named_as_often_as_an_epoch_sees_it():
    found = decided(data={"train": ["a.jsonl", {"path": "b.jsonl", "times": 2}], "sequence": 512})
    assert (found.data.train, found.data.more) == ("a.jsonl", ("b.jsonl", "b.jsonl"))
    assert training_data(found) == ("a.jsonl", "b.jsonl", "b.jsonl")


@pytest.mark.parametrize("train", ["a.jsonl", ["a.jsonl"], [{"path": "a.jsonl"}]])
def test_a_list_of_one_is_that_one(train):
    data = decided(data={"train": train, "sequence": 512}).data
    assert (data.train, data.more) == ("a.jsonl", ())


def test_samples_are_those_of_an_epoch():
    """They are not multiplied: who repeats a file counts its samples as often."""
    steps = [compiled(each).planned.plan.schedule.steps for each in (TWICE, "a.jsonl")]
    assert steps == [200, 200]


@pytest.mark.parametrize(
    ("train", "code", "column", "said"),
    [
        ("[]", "E0306", 15, "`data.train` needs 1 or more items"),
        ("[a.jsonl, {path: b.jsonl, times: 0}]", "E0307", 48, "must be at least 1, and is `0`"),
        ("[a.jsonl, {path: b.jsonl, times: 1.5}]", "E0303", 48, "must be a whole number"),
        ("[a.jsonl, {path: b.jsonl, times: 9999}]", "E0307", 48, "must be at most 1000"),
        ("[a.jsonl, b.jsonl, a.jsonl]", "E0308", 34, "lists `a.jsonl` twice"),
        ("[a.jsonl, {path: a.jsonl, times: 2}]", "E0308", 25, "lists `a.jsonl` twice"),
        ("[{path: a.jsonl, weight: 2}]", "E0301", 32, "`weight` is not a field"),
        ("[a.jsonl, {times: 2}]", "E0302", 26, "`data.train[1].path` is missing"),
        ("[a.jsonl, 3]", "E0303", 25, "must be text or a mapping"),
        ("3", "E0303", 15, "must be text, a mapping or a list"),
    ],
)
def test_what_is_no_list_of_parts_is_told_where_it_stands(train, code, column, said):
    found = faults(load_text(SPEC.format(train=train, target="trl", more="")))
    assert set(found) == {code}
    label = found[code].primary
    assert said in found[code].message
    assert (label.span.line, label.span.column) == (4, column)


def test_the_word_of_another_program_leads_to_ours():
    found = faults(load_text(SPEC.format(train="[{path: a, repeats: 2}]", target="trl", more="")))
    assert found["E0301"].help == "write it at `data.train.times`"


@pytest.mark.parametrize(
    ("train", "more", "target"),
    [
        (TWICE, "", "trl@0.8"),
        (TWICE, "", "trl"),
        (TWICE, "evaluation: c.json, ", "trl"),
        ("[a.csv, b.csv]", "", "trl"),
        ("[org/one, org/two]", "", "trl@0.22"),
        ("[org/one, {path: b.jsonl, times: 2}, ./rows]", "", "trl"),
    ],
)
def test_trl_takes_what_its_script_joins(train, more, target):
    found = compiled(train, target, more)
    assert faults(found) == {}
    written = {each.name: each.values for each in found.artifacts["trl"]}
    names = written["sft.yaml"]
    assert ("datasets" in names) == ("org/one" in train)
    assert ("dataset/README.md" in written) == ("datasets" not in names)


@pytest.mark.parametrize(
    ("train", "more", "target", "said"),
    [
        ("[a.jsonl, b.csv]", "", "trl", "read the same way"),
        ("[org/one, b.csv]", "", "trl", "read the same way"),
        ("[a.jsonl, 's3://bucket/b']", "", "trl", "read the same way"),
        ("[org/one, org/two]", "evaluation: c.jsonl, ", "trl", "nothing is evaluated on"),
        ("[org/one, org/two]", "", "trl@0.17", "from trl 0.22 on"),
        (TWICE, "", "llama-cookbook", "is given one path"),
        (TWICE, "", "glm4", "is given one path"),
        (TWICE, "", "minicpm-v", "is given one path"),
    ],
)
def test_what_a_target_does_not_join_is_refused(train, more, target, said):
    found = [
        each
        for each in compiled(train, target, more).diagnostics
        if each.id == "E0901" and "cannot express data.more" in each.message
    ]
    assert len(found) == 1
    assert said in found[0].notes[0]
    assert found[0].primary.span.line == 4


def test_a_later_release_is_offered_where_it_joins_them():
    found = compiled("[org/one, org/two]", "trl@0.17")
    assert [each.id for each in found.diagnostics if each.severity == "error"] == ["E0901"]
    assert (faults(found)["E0901"].help or "").startswith("use trl 0.22.2 or later")


def test_more_folders_of_pictures_than_simpletuner_is_given_are_refused():
    many = ", ".join(f"folder-{at}" for at in range(20))
    text = SPEC.format(train=f"[{many}]", target="simpletuner", more="")
    spec = text.replace("llama-3.1-8b", "sdxl-base-1.0").replace(
        "sequence: 1024", "resolution: 512"
    )
    found = tunec.compile(spec, targets=["simpletuner"])
    told = [each for each in found.diagnostics if each.severity == "error"]
    assert [each.id for each in told] == ["E0901"]
    assert "cannot express data.more" in told[0].message
    assert told[0].primary.span.line == 4
