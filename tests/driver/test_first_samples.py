"""The first samples of each data set: what a plan counts, what each target says or refuses."""

import pytest
from planning import decided

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_text
from tunec.compiler.ir.plan import limited_data
from tunec.targets.registry import REGISTRY

SPEC = """\
tunec: 1
model: llama-3.1-8b-instruct
method: lora
data: {{train: {train}, {more}sequence: 1024}}
hardware: a100-80g-x1
batch: {{global: 32}}
"""
SOME = "[{path: a.jsonl, samples: 1600}, {path: b.jsonl, samples: 800, times: 2}]"
ONE = "{path: org/one, samples: 3200}"


def compiled(train, target="trl", more=""):
    loaded = load_text(SPEC.format(train=train, more=more))
    return compile_spec(loaded, [REGISTRY.resolve(target, {})])


def errors(found):
    return [each for each in found.diagnostics if each.severity == "error"]


def written(train, target, file):
    found = compiled(train, target)
    assert not errors(found), errors(found)
    return next(each.values for each in found.artifacts[target] if each.name == file)


def test_samples_and_steps_are_those_of_the_limits():
    plan = compiled(SOME).planned.plan
    assert limited_data(plan) == (("a.jsonl", 1600), ("b.jsonl", 800), ("b.jsonl", 800))
    assert (plan.data.samples, plan.schedule.steps) == (3200, 100)


@pytest.mark.parametrize(
    "part",
    [
        {"path": "org/one", "samples": 9},
        {"path": "org/one", "split": "train[:9]"},
        {"path": "org/one", "samples": 9, "split": "train[:20]"},
        "org/one::train[:9]",
    ],
)
def test_a_slice_of_so_many_is_a_limit(part):
    data = decided(data={"train": part, "sequence": 512}).data
    assert (data.train, data.limits, data.samples) == ("org/one", (9,), 9)


def test_a_part_without_a_limit_leaves_the_number_open():
    data = decided(data={"train": ["a.jsonl", {"path": "b.jsonl", "samples": 9}]}).data
    assert (data.limits, data.samples) == ((0, 9), None)


@pytest.mark.parametrize(("samples", "is_sound"), [("3200", True), ("100", True), ("3201", False)])
def test_more_samples_than_the_parts_give_are_refused(samples, is_sound):
    found = errors(compiled(SOME, more=f"samples: {samples}, "))
    assert [each.id for each in found] == ([] if is_sound else ["E0307"])
    assert is_sound or "data.train give 3,200 at most" in found[0].message


def test_a_pin_has_a_number_for_each_data_set():
    text = SPEC.format(train="[a.jsonl, b.jsonl]", more="") + "pin: {data.limits: [3]}\n"
    found = errors(compile_spec(load_text(text), [REGISTRY.resolve("trl", {})]))
    assert any("a number for each data set" in each.message for each in found)


def test_trl_is_given_slices_by_its_mixture():
    """Its script looks a split up by its whole name: `dataset[script_args.dataset_train_split]`."""
    parts = written(SOME, "trl", "sft.yaml")["datasets"]
    assert {each["path"] for each in parts} == {"json"}
    assert [(each["data_files"].rpartition("/")[2], each["split"]) for each in parts] == [
        *(("a.jsonl", "train[:1600]"), ("b.jsonl", "train[:800]"), ("b.jsonl", "train[:800]"))
    ]
    tenth = written("{path: org/one, split: 'train[:10%]'}", "trl", "sft.yaml")
    assert tenth["datasets"] == [{"path": "org/one", "split": "train[:10%]"}]
    assert not tenth.keys() & {"dataset_name", "dataset_train_split"}


def test_what_each_trainer_is_told():
    parts = written(SOME, "axolotl", "axolotl.yaml")["datasets"]
    assert [each["split"] for each in parts] == ["train[:1600]", "train[:800]", "train[:800]"]
    sets = written(SOME, "llamafactory", "dataset_info.json")
    assert [each["split"] for each in sets.values()] == [each["split"] for each in parts]
    swift = written(SOME, "ms-swift", "ms-swift.yaml")
    assert [each.rpartition("#")[2] for each in swift["dataset"]] == ["1600", "800", "800"]
    assert swift["dataset_shuffle"] is False
    nemo = written(ONE, "nemo-automodel", "nemo_automodel.yaml")
    assert nemo["dataset"]["split"] == "train[:3200]"


def test_openrlhf_is_given_the_limit_of_one_data_set():
    found = compiled(ONE, "openrlhf")
    assert not errors(found)
    assert any("--data.max_samples 3200" in each.text for each in found.artifacts["openrlhf"])


@pytest.mark.parametrize(
    ("train", "target", "more"),
    [
        (SOME, "trl@0.17", ""),
        (SOME, "trl", "evaluation: c.jsonl, "),
        (SOME, "openrlhf", ""),
        (SOME, "nemo-automodel", ""),
        ("{path: a.parquet, samples: 3200}", "verl", ""),
        ("{path: a.jsonl, samples: 3200}", "unsloth", ""),
        ("{path: a.jsonl, samples: 9}", "glm4", ""),
        ("{path: a.json, samples: 9}", "minicpm-v", ""),
        ("{path: a.py, samples: 9}", "llama-cookbook", ""),
        ("{path: a.json, samples: 9}", "visualglm", ""),
    ],
)
def test_what_a_target_cannot_take_is_refused(train, target, more):
    found = errors(compiled(train, target, more))
    assert any("cannot express data.limits" in each.message for each in found), found


def test_ms_swift_would_repeat_what_is_not_there():
    found = errors(compiled(SOME, "ms-swift", "samples: 3000, "))
    assert ["repeats the samples" in each.message for each in found] == [True]
