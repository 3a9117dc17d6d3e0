"""Rules on compile: a plan whose files break one is not written; what is written breaks none."""

import time
from functools import cache
from pathlib import Path

import pytest

import tunec
from tunec.compiler.driver import Compiled, compile_spec, plan
from tunec.compiler.emit import emit
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.emission import EXEMPT, environment_of, objections, run_of
from tunec.compiler.lints.index import rule_names, rule_page, rules, rules_for, rules_of_kinds
from tunec.compiler.lints.lint import lint_texts
from tunec.compiler.lints.rule import check_rule
from tunec.targets.registry import TARGETS

_EXAMPLES = Path(__file__).parents[2] / "examples"
_FIVE_LINES = _EXAMPLES / "five-lines/spec.yaml"


@cache
def _runs() -> tuple[LintContext, ...]:
    """The files of every example for every target that can say it."""
    found = (_run(spec, name) for spec in _EXAMPLES.glob("*/spec.yaml") for name in TARGETS.names())
    return tuple(each for each in found if each is not None)


def _run(spec: Path, name: str) -> LintContext | None:
    target, version = TARGETS.resolve(name)
    compiled = compile_spec(load_spec(spec), [(target, version)], repairing=False)
    facts, plan = compiled.planned.facts, compiled.planned.plan
    if not compiled.ok or facts is None or plan is None:
        return None
    return run_of(
        target, compiled.artifacts[name], environment_of(target, version, facts, plan), plan
    )


def test_a_rule_that_is_not_asked_of_a_run_finds_nothing() -> None:
    assert len(_runs()) > 50
    for run in _runs():
        asked = rules_for(run.kinds, run.keys)
        silent = [each for each in rules() if each not in asked]
        assert len(silent) > len(rules()) / 8
        found = [each.id for rule in silent for each in check_rule(rule, run)]
        assert found == []


def test_few_subjects_are_imported_to_write_a_deepspeed_file() -> None:
    """What a cold compile costs rests on it."""
    assert len(list(rules_of_kinds(frozenset({"deepspeed"})))) < 0.5 * len(rules())


def test_an_exempt_rule_is_one() -> None:
    assert set(EXEMPT) <= set(rule_names())
    assert all(rule_page(name) and why for name, why in EXEMPT.items())


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


def _compiled(target: str, *overrides: str) -> Compiled:
    return compile_spec(load_spec(_FIVE_LINES, overrides), [TARGETS.resolve(target)])


@pytest.mark.parametrize(
    ("pin", "name"),
    [
        ("pin.optimizer.beta2=1.0", "optimizer-number-refused"),
        ("pin.adapter.alpha=0", "lora-alpha-of-zero"),
        ("pin.adapter.dropout=1.0", "lora-dropout-out-of-range"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_not_emitted(pin: str, name: str) -> None:
    compiled = _compiled("huggingface", pin)
    slot = pin.partition("=")[0].removeprefix("pin.")
    (told,) = [each for each in compiled.diagnostics if each.severity == "error"]
    assert compiled.artifacts == {}
    assert told.id == name
    assert [label.path for label in told.labels] == [slot]
    assert all(label.span for label in told.labels), "the pin's own line"
    assert told.help is not None
    assert slot in told.help


@pytest.mark.parametrize(
    ("example", "target", "changes", "name", "slots"),
    [
        (  # a flag of a script, which its rows have in a block
            *("minicpm-v-2_6-lora", "minicpm-v", {"optimizer.learning_rate": 2.0}),
            *("learning-rate-beyond-adam", ["optimizer.learning_rate"]),
        ),
        (  # a variable within what one row writes
            *("five-lines", "launch", {"launch.environment": (("PYTORCH_CUDA_ALLOC_CONF", "x"),)}),
            *("allocator-setting-refused", ["launch.environment"]),
        ),
        (  # two files say it, and one of them by a key that sets no slot
            *("simpletuner-sdxl-lora", "simpletuner"),
            *({"data.image_width": 39, "data.image_height": 39}, "megapixels-taken-for-pixels"),
            ["data.train", "data.image_width", "data.image_height"],
        ),
        (  # transformers 4.40 has no key for quantization.storage
            *("llama-3.2-3b-mixed-gpus", "huggingface@4.40.2", {}, "fp16-trainable-weights"),
            [
                *("states.weights", "quantization.compute", "precision.compute"),
                *("precision.loss_scaling", "states.autocast"),
            ],
        ),
    ],
)
def test_a_finding_is_at_the_slots_of_its_key_in_that_release(
    example: str, target: str, changes: dict[str, object], name: str, slots: list[str]
) -> None:
    asked = TARGETS.resolve(target)
    planned = plan(load_spec(_EXAMPLES / example / "spec.yaml"), [asked], repairing=False)
    facts, decided = planned.facts, planned.plan
    assert facts is not None
    assert decided is not None
    changed = decided.with_values(changes)
    files, _ = emit(asked[0], changed, asked[1], software=facts.versions)
    found = {each.id: each for each in objections(asked, files, facts, changed)}
    assert [label.path for label in found[name].labels] == slots


def test_flags_that_no_table_reads_are_judged_as_lint_judges_them() -> None:
    target, version = TARGETS.resolve("visualglm")
    planned = plan(load_spec(_FIVE_LINES), [(target, version)], repairing=False)
    facts, decided = planned.facts, planned.plan
    assert facts is not None
    assert decided is not None
    files, _ = emit(target, decided, version, software=facts.versions)
    run = run_of(target, files, environment_of(target, version, facts, decided), decided)
    assert [each.kind for each in run.documents] == ["visualglm", "sat", "deepspeed"]


def test_a_warning_is_told_and_the_files_are_written() -> None:
    compiled = _compiled("huggingface", "pin.runtime.dataloader_workers=500")
    (told,) = [each for each in compiled.diagnostics if each.severity == "warning"]
    assert told.id == "more-workers-than-cores"
    assert compiled.artifacts["huggingface"]


def test_a_warning_that_the_spec_allows_is_not_told() -> None:
    compiled = _compiled(
        "huggingface",
        "pin.runtime.dataloader_workers=500",
        'allow={more-workers-than-cores: "the loader sleeps"}',
    )
    assert [each.id for each in compiled.diagnostics if each.severity != "note"] == []


_SPECS = sorted(Path(__file__).parents[2].glob("examples/*/spec.yaml"))
_MOST_SECONDS = 2.0
"""For the files of one target, on a busy machine; alone it is a twentieth of that."""
_ALONE = "missing-file"
"""The file of another target that was not written."""


@pytest.mark.parametrize("spec", _SPECS, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("name", TARGETS.names())
def test_what_is_compiled_breaks_no_rule(spec: Path, name: str) -> None:
    compiled = tunec.compile(spec, targets=[name])
    facts, plan = compiled.planned.facts, compiled.planned.plan
    if not compiled.ok or facts is None or plan is None:
        pytest.skip(f"{name} cannot say this plan")
    environment = environment_of(*TARGETS.resolve(name, facts.versions), facts, plan)
    texts = {each.name: each.text for each in compiled.artifacts[name]}
    start = time.process_time()
    linted = lint_texts(texts, TARGETS.readable(), environment)
    assert time.process_time() - start < _MOST_SECONDS
    said = {(each.id, each.message) for each in compiled.diagnostics}
    found = {(each.id, each.message) for each in linted.diagnostics if each.severity != "note"}
    assert {each for each in found - said if each[0] not in {*EXEMPT, _ALONE}} == set()


def test_four_bits_in_fp16_are_refused_where_trls_trainer_runs_alone() -> None:
    """A script that reads TrainingArguments need not use TRL's trainer, which casts adapters."""
    spec = {
        "tunec": 1,
        "model": "qwen2.5-1.5b",
        "method": "qlora",
        "data": {"train": "train.jsonl", "samples": 1000, "sequence": 512},
        "hardware": "t4-x1",
    }
    assert tunec.compile(spec, targets=["huggingface"]).ok
    fp16 = {**spec, "pin": {"precision.compute": "fp16"}}
    assert "E0601" in {each.id for each in tunec.compile(fp16, targets=["trl"]).diagnostics}


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("lora", "E0905"),
        ({"lora": {"targets": ["q_proj", "v_proj"]}}, "lora-target-not-a-layer"),
    ],
)
def test_openrlhf_is_given_no_layers_that_it_cannot_name(method, fault) -> None:
    """Its flag is a list of names, some of which wrap a layer in Gemma 4's towers."""
    spec = {
        "tunec": 1,
        "model": "gemma-4-e4b",
        "method": method,
        "data": {"train": "train.jsonl", "samples": 1000, "sequence": 512},
        "hardware": "a100-80g-x1",
    }
    found = tunec.compile(spec, targets=["openrlhf"])
    assert fault in {each.id for each in found.diagnostics if each.severity == "error"}
